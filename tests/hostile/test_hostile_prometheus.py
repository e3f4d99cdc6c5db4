"""Something that pretends to be Prometheus: whatever it answers, it costs bounded time and memory, and is told."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.api.samples import Quality
from slipway.metrics import PrometheusSource
from slipway.metrics.custom import LONGEST_ANSWER
from slipway.metrics.session import MAX_ANSWER_BYTES, BoundedSession

from tests.metrics.prometheus import FakePrometheus, serving
from tests.metrics.test_snapshot import NOW, alive, read
from tests.probe.servers import raw_server

PATIENCE = 60.0
LATE = "no answer within 1s"
EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()
HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = b" " * 1_000_000


def whole(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers, b"", body]
    return b"\r\n".join(lines)


class Pretender:
    """Answers with ``begin``, then with ``more`` again and again; with ``honest`` it has nothing to tell."""

    def __init__(self, begin: bytes, more: bytes = b"", pause: float = 0.0) -> None:
        self.begin, self.more, self.pause = begin, more, pause
        self.honest = False
        self.over = asyncio.Event()
        self.asked = 0
        self.answered = 0
        """Honestly."""
        self.sent = 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        part = whole(EMPTY) if self.honest else self.begin
        while part and not self.over.is_set():
            writer.write(part)
            await writer.drain()
            self.sent += len(part)
            if self.honest:
                self.answered += 1
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), self.pause)
            part = self.more

    @asynccontextmanager
    async def source(self, timeout: float) -> AsyncIterator[PrometheusSource]:
        async with raw_server(self.talk) as port:
            source = PrometheusSource(f"http://127.0.0.1:{port}", timeout=timeout)
            try:
                yield source
            finally:
                self.over.set()
                source.close()


async def comes_back(pretender: Pretender, source: PrometheusSource) -> None:
    """Once it behaves, so does everything: nothing of the hostile answer is still under way.

    Eight honest answers may take longer than the second that a snapshot has on a machine that does other work.
    """
    pretender.honest = True
    async with asyncio.timeout(PATIENCE):
        while True:
            snapshot = await source.snapshot(NOW)
            if snapshot.available or (snapshot.error == LATE and pretender.answered):
                return


@pytest.mark.parametrize(
    ("begin", "cause"),
    [
        (b"\x16\x03\x01 no http at all\r\n\r\n", "no connection to"),
        (b"", "no connection to"),
        (whole(b"\x00\xff garbage"), "not Prometheus' JSON"),
        (whole(b"[" * 5_000_000), "JSON, but not of"),
        (whole(b'{"a":' * 1_000_000), "JSON, but not of"),
        (whole(b"9" * 100_000), "Exceeds the limit"),
        (whole(gzip.compress(b" " * (MAX_ANSWER_BYTES + 1)), b"Content-Encoding: gzip"), "has more than"),
        (whole(b"no gzip", b"Content-Encoding: gzip"), "gzip"),
        (HEAD + b"Content-Length: 100\r\n\r\n{}", "no connection to"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "no connection to"),
        (HEAD + b"X: y\r\n" * 500 + b"\r\n", "no connection to"),
        (HEAD + b"X: " + b"y" * 100_000 + b"\r\n\r\n", "no connection to"),
    ],
    ids=[
        "no HTTP", "nothing", "garbage", "deep lists", "deep objects", "a long number", "bomb", "no gzip", "cut off",
        "chunks", "many headers", "a long header",
    ],
)  # fmt: skip
async def test_garbage_is_told_and_costs_nobody_else_anything(begin: bytes, cause: str) -> None:
    pretender = Pretender(begin)
    async with pretender.source(timeout=PATIENCE) as source:
        snapshot = await source.snapshot(NOW)
        assert (snapshot.available, pretender.asked) == (False, 1)
        assert cause in snapshot.error and len(snapshot.error) <= 300
        await comes_back(pretender, source)


@pytest.mark.parametrize(
    "pretender",
    [
        Pretender(b"H", b"", pause=3600),
        Pretender(HEAD, b"X: y\r\n", pause=0.05),
        Pretender(HEAD + b"Content-Length: 1000000\r\n\r\n", b" ", pause=0.05),
        Pretender(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", pause=0.05),
        Pretender(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10], b"", pause=3600),
    ],
    ids=["never", "a head that drips", "a body that drips", "chunks that drip", "a compressed body that stops"],
)
async def test_who_never_comes_to_an_end_is_cut_off(pretender: Pretender) -> None:
    async with pretender.source(timeout=1.0) as source:
        snapshot = await source.snapshot(NOW)
        assert (snapshot.available, snapshot.error) == (False, LATE)
        await comes_back(pretender, source)


@pytest.mark.parametrize("head", [b"", b"Content-Length: 1000000000000\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_gigabytes_are_given_up_in_time(head: bytes) -> None:
    block = b"%x\r\n%s\r\n" % (len(ENDLESS), ENDLESS) if b"chunked" in head else ENDLESS
    pretender = Pretender(HEAD + head + b"\r\n", block)
    async with raw_server(pretender.talk) as port:
        session = BoundedSession(PATIENCE, max_bytes=3_000_000)
        tracemalloc.start()
        with pytest.raises(requests.exceptions.ContentDecodingError, match="more than 3000000 bytes"):
            await asyncio.to_thread(session.get, f"http://127.0.0.1:{port}/")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        session.close()
    assert peak < 30_000_000
    # What was on its way when the client had enough fits into the buffers of the connection.
    assert pretender.sent < 50_000_000


async def test_redirects_are_not_followed_whoever_sends_them() -> None:
    elsewhere = Pretender(whole(EMPTY))
    async with raw_server(elsewhere.talk) as port:
        for status in (b"301 Moved", b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"):
            location = b"Location: http://127.0.0.1:%d/api/v1/query" % port
            async with Pretender(whole(b"", location, status=status)).source(timeout=PATIENCE) as source:
                snapshot = await source.snapshot(NOW)
                assert not snapshot.available and status[:3].decode() in snapshot.error
    assert elsewhere.asked == 0


async def test_a_users_expression_may_cost_no_more_than_a_number_does() -> None:
    fake = FakePrometheus([alive("p-0")], values={"all": ["1" * 100] * (LONGEST_ANSWER // 100)})
    with serving(fake) as url:
        source = PrometheusSource(url)
        source.want("nlp", "sentiment", ["all"])
        view = (await source.snapshot(NOW)).view("nlp", "sentiment")
        source.close()
    assert view.available
    assert view.queries["all"].quality is Quality.INVALID
    assert f"more than {LONGEST_ANSWER} bytes" in view.queries["all"].reason


NUMBERS: st.SearchStrategy[Any] = st.sampled_from(
    ["1", "-1", "NaN", "+Inf", "-Inf", "1e308", "x", "", None, 5, [], "9" * 400]
)
TIMES: st.SearchStrategy[Any] = st.sampled_from(
    [NOW, NOW - 15, NOW - 30, -1e308, 1e308, 0, "x", None, float("nan"), float("inf"), NOW + 1e6]
)
NAMES = [
    "slipway_requests_in_flight", "slipway_model_ready", "slipway_requests_total", "slipway_queue_depth",
    "slipway_request_duration_seconds_bucket", "DCGM_FI_DEV_GPU_UTIL", "istio_requests_total", "",
]  # fmt: skip
LABELS = ["__name__", "namespace", "pod", "node", "model", "version", "revision", "code", "le", "gpu", "UUID", "pair"]
WORDS = st.sampled_from(["nlp", "p-0", "sentiment", "v1", "200", "0.1", "+Inf", "", "x" * 5000, "\ud800", "\x00", '"'])


@st.composite
def series(draw: st.DrawFn) -> Any:
    labels: dict[str, Any] = {name: draw(WORDS) for name in draw(st.lists(st.sampled_from(LABELS)))}
    labels["__name__"] = draw(st.sampled_from(NAMES))
    values = draw(st.lists(st.tuples(TIMES, NUMBERS), max_size=4))
    kind = draw(st.sampled_from(["values", "value", "other"]))
    return draw(st.sampled_from([{"metric": labels, kind: values[0] if kind == "value" and values else values}, None]))


@given(st.sampled_from([b"matrix", b"vector", b"scalar", b"string", b""]), st.lists(series(), max_size=4))
@settings(max_examples=60)
def test_figures_of_any_kind_are_a_snapshot(kind: bytes, found: list[Any]) -> None:
    answer = {"status": "success", "data": {"resultType": kind.decode(), "result": found}}
    snapshot = asyncio.run(read(FakePrometheus(body=json.dumps(answer).encode())))
    assert snapshot.available or snapshot.error
    for namespace, name in [("nlp", "sentiment"), *snapshot.views]:
        assert snapshot.view(namespace, name).at == NOW
