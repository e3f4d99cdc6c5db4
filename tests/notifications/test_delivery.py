"""Messages on their way: to receivers that fail first, are slow, are away, or do not want them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slipway.notifications.delivery import Delivery, DeliveryLimits
from slipway.notifications.messages import Message
from slipway.notifications.receivers import Receiver, ReceiverType

from tests.notifications.receiver import LocalReceiver, Time


def message(number: int) -> Message:
    return Message(f"u/{number}", "application/json", str(number).encode())


class Way:
    def __init__(self, url: str = "", limits: DeliveryLimits | None = None, **receiver: Any) -> None:
        self.time, self.fates = Time(), list[tuple[str, str]]()
        self.delivery = Delivery(
            Receiver("ops", ReceiverType.WEBHOOK, **({"url": url} | receiver)),
            count=lambda name, fate: self.fates.append((name, fate)),
            clock=self.time,
            sleep=self.time.sleep,
            draw=lambda: 1.0,
            limits=limits,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Way"]:
        async with aiohttp.ClientSession() as session:
            task = asyncio.ensure_future(self.delivery.run(session))
            try:
                yield self
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def send(self, *numbers: int) -> list[str]:
        """Queue messages and wait until all are done with; the fates in order."""
        async with self.running():
            for number in numbers:
                self.delivery.put(message(number))
            async with asyncio.timeout(60):
                await self.delivery.drained()
        return [fate for _, fate in self.fates]


async def test_messages_arrive_in_order():
    async with LocalReceiver().open() as receiver:
        assert await Way(receiver.url).send(1, 2, 3) == ["sent"] * 3
    assert receiver.bodies == [b"1", b"2", b"3"]
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert "Authorization" not in receiver.headers[0]


async def test_one_that_fails_first_gets_it_later_with_growing_waits_and_in_order():
    async with LocalReceiver([503, 500, 429, 408, 204]).open() as receiver:
        way = Way(receiver.url)
        assert await way.send(1, 2) == ["retried"] * 4 + ["sent"] * 2
    assert receiver.bodies == [b"1"] * 5 + [b"2"]
    assert way.time.slept == [1.0, 2.0, 4.0, 8.0]


async def test_waits_are_spread_and_bounded():
    limits = DeliveryLimits()
    assert [limits.wait(failures, 0.0) for failures in (1, 2, 3)] == [0.5, 1.0, 2.0]
    assert limits.wait(1000, 1.0) == limits.longest_wait


async def test_what_the_receiver_asks_to_wait_is_waited():
    busy = web.Response(status=429, headers={"Retry-After": "17"})
    nonsense = web.Response(status=503, headers={"Retry-After": "never"})
    async with LocalReceiver([busy, nonsense, 204]).open() as receiver:
        way = Way(receiver.url)
        await way.send(1)
    assert way.time.slept == [17.0, 2.0]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 301, 307])
async def test_a_refusal_is_final_and_no_redirect_is_followed(status: int, caplog: pytest.LogCaptureFixture):
    elsewhere = web.Response(status=status, headers={"Location": "/hook"})
    async with LocalReceiver([elsewhere]).open() as receiver:
        assert await Way(receiver.url).send(1, 2) == ["refused", "sent"]
    assert receiver.bodies == [b"1", b"2"]
    assert f"refused a notification with status {status}" in caplog.text


async def test_one_that_is_away_costs_a_bounded_queue_and_a_bounded_time():
    limits = DeliveryLimits(queue=3, give_up=30.0)
    way = Way("http://127.0.0.1:1/hook", limits)
    async with way.running():
        for number in range(5):
            way.delivery.put(message(number))
        assert way.fates == [("ops", "overflow")] * 2
        async with asyncio.timeout(60):
            await way.delivery.drained()
    fates = [fate for _, fate in way.fates]
    assert fates.count("expired") == 3
    assert fates.count("overflow") == 2
    assert sum(way.time.slept) <= 30.0


async def test_a_slow_one_delays_nobody_and_is_given_up_on(caplog: pytest.LogCaptureFixture):
    async with LocalReceiver(held=asyncio.Event()).open() as receiver:
        way = Way(receiver.url, DeliveryLimits(timeout=0.05, give_up=2.0))
        async with way.running():
            way.delivery.put(message(1))
            # Putting has returned though nothing was answered.
            assert way.fates == []
            async with asyncio.timeout(60):
                await way.delivery.drained()
        assert [fate for _, fate in way.fates] == ["retried", "expired"]
        assert receiver.held is not None
        receiver.held.set()
    assert "TimeoutError" in caplog.text


async def test_secrets_come_from_files_and_are_not_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG, "slipway")
    (tmp_path / "token").write_text("t0ken")
    async with LocalReceiver([500, 403]).open() as receiver:
        (tmp_path / "url").write_text(f"{receiver.url}?key=s3cret")
        way = Way(url_file=str(tmp_path / "url"), token_file=str(tmp_path / "token"))
        await way.send(1)
    assert receiver.headers[0]["Authorization"] == "Bearer t0ken"
    (tmp_path / "url").write_text("https://user:s3cret@[bad")
    await way.send(2)
    assert "s3cret" not in caplog.text
    assert "t0ken" not in caplog.text


async def test_a_secret_that_comes_late_is_waited_for(tmp_path: Path):
    async with LocalReceiver().open() as receiver:
        way = Way(url_file=str(tmp_path / "url"))
        sleep = way.time.sleep

        async def mount(seconds: float) -> None:
            (tmp_path / "url").write_text(receiver.url)
            await sleep(seconds)

        way.delivery._sleep = mount
        assert await way.send(1) == ["retried", "sent"]
