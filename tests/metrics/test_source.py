"""The connection: whatever goes wrong is a snapshot that says so."""

import asyncio
import socket

import pytest
from slipway.api.samples import Quality
from slipway.metrics import PrometheusSource

from tests.metrics.prometheus import FakePrometheus, serving
from tests.metrics.test_snapshot import NOW, alive, read, requests


async def test_nobody_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        source = PrometheusSource(f"http://127.0.0.1:{reserved.getsockname()[1]}")
        snapshot = await source.snapshot(NOW)
        source.close()
    assert not snapshot.available
    assert snapshot.error.startswith("no connection to 127.0.0.1:"), "a cause that stays the same at every try"
    view = snapshot.view("nlp", "sentiment")
    assert (view.available, view.error) == (False, snapshot.error)
    assert view.of("any").arrivals.quality is Quality.MISSING


@pytest.mark.parametrize("status", [400, 422, 500, 503])
async def test_an_error_is_unavailable_and_not_retried(status):
    fake = FakePrometheus(status=status, body=b'{"status":"error","error":"query timed out"}')
    snapshot = await read(fake)
    assert not snapshot.available
    assert "query timed out" in snapshot.error
    assert len(fake.queries) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>not Prometheus</html>",
        b"{}",
        b"[]",
        b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[["x","y"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":[],"values":[[1,"2"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":null}}',
        b'{"status":"success","data":null}',
    ],
)
async def test_garbage_is_unavailable(body):
    assert not (await read(FakePrometheus(body=body))).available


async def test_empty_answers_are_available_and_know_nobody():
    snapshot = await read(FakePrometheus())
    assert snapshot.available
    assert snapshot.views == {}


async def test_a_slow_answer_is_given_up_and_not_piled_upon():
    fake = FakePrometheus([alive("p-0")], delay=30.0)
    with serving(fake) as url:
        source = PrometheusSource(url, timeout=0.2)
        first = await source.snapshot(NOW)
        assert not first.available
        assert "0.2s" in first.error or "timed out" in first.error
        fake.released.set()
        async with asyncio.timeout(60):
            while not (await source.snapshot(NOW)).available:
                pass
        source.close()


async def test_while_a_snapshot_is_read_a_second_one_is_refused():
    fake = FakePrometheus([alive("p-0")], delay=30.0)
    with serving(fake) as url:
        source = PrometheusSource(url)
        first = asyncio.create_task(source.snapshot(NOW))
        assert await asyncio.to_thread(fake.asked.wait, 60)
        second = await source.snapshot(NOW)
        fake.released.set()
        assert (await first).available
        source.close()
    assert not second.available
    assert "still being read" in second.error


async def test_headers_are_sent():
    fake = FakePrometheus()
    await read(fake, headers={"Authorization": "Bearer x"})
    assert fake.headers["Authorization"] == "Bearer x"


async def test_a_slash_at_the_end_of_the_url_is_fine():
    fake = FakePrometheus([alive("p-0"), requests("p-0", 15.0)])
    with serving(fake) as url:
        source = PrometheusSource(url + "/")
        assert (await source.snapshot(NOW)).available
        source.close()
