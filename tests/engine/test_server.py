import asyncio

import aiohttp
import pytest
from slipway.engine.queue import WorkQueue
from slipway.engine.resync import Resync
from slipway.engine.server import Health, HealthLimits, serve
from slipway.engine.telemetry import Telemetry
from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.metadata import Key

from tests.kube.memory_api import MemoryApi


class Stage:
    def __init__(self) -> None:
        self.now = 0.0
        self.late = 0.0
        self.telemetry = Telemetry()
        self.queue: WorkQueue[Key] = WorkQueue(clock=self.clock)
        self.resync = Resync(
            Client(MemoryApi()), Cache(), self.telemetry, period=100.0, clock=self.clock, on_changed=self.queue.add
        )
        self.health = Health(self.queue, self.resync, self.telemetry, clock=self.clock, sleep=self.sleep)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late
        await asyncio.sleep(0)

    async def beat(self) -> None:
        task = asyncio.ensure_future(self.health.run())
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_working_operator_is_healthy_and_ready_after_its_first_list(stage):
    assert (stage.health.problems(), stage.health.ready) == ([], False)
    await stage.resync.once()
    await stage.beat()
    assert (stage.health.problems(), stage.health.ready) == ([], True)


async def test_a_late_event_loop_is_told(stage):
    stage.late = 6.0
    await stage.beat()
    assert stage.health.problems() == ["the event loop is 6.0 s late"]


async def test_nothing_listed_since_the_start_is_told(stage):
    stage.now = HealthLimits().first_resync + 1
    assert stage.health.problems() == ["nothing could be listed since the start"]


async def test_an_old_list_is_told(stage):
    await stage.resync.once()
    stage.now += 301
    assert stage.health.problems() == ["the last complete list is 301 s old"]


async def test_neglected_keys_are_told_only_where_they_are_worked_on(stage):
    await stage.resync.once()
    stage.queue.add(Key("ns", "m"))
    stage.now += 299
    await stage.resync.once()
    stage.now += 2
    assert stage.health.problems() == []
    stage.health.leading = True
    assert stage.health.problems() == ["a key has been ready for 301 s"]


async def test_a_stuck_reconcile_is_told(stage):
    stage.queue.add(Key("ns", "m"))
    await stage.queue.take()
    stage.now += 290
    await stage.resync.once()
    stage.now += 11
    assert stage.health.problems() == ["a reconcile has been running for 301 s"]


async def test_the_endpoints(stage):
    runner = await serve(stage.health, stage.telemetry, "127.0.0.1", 0)
    host, port = runner.addresses[0]
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:

            async def ask(path: str) -> tuple[int, str]:
                async with session.get(path) as response:
                    return response.status, await response.text()

            assert await ask("/healthz") == (200, "ok")
            assert await ask("/readyz") == (503, "not listed yet")
            await stage.resync.once()
            assert await ask("/readyz") == (200, "ok")
            code, text = await ask("/metrics")
            assert (code, "slipway_operator_build_info" in text) == (200, True)
            stage.now += 1000
            assert (await ask("/healthz"))[0] == 500
    finally:
        await runner.cleanup()
