"""Istio's standard request metrics, as Prometheus has them from the sandbox's Envoy."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest_asyncio

from e2e.sandbox.mesh.proxy import EnvoyProxy
from e2e.sandbox.telemetry import Prometheus, envoy_target
from tests.istio_wire.mesh_bench import HOST, REVISIONS, Bench, Pod, scene
from tests.istio_wire.stub_api import TOKEN, StubApi
from tests.telemetry.test_prometheus import query


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    pods = [Pod(revision, address, {"rev": revision}) for address, revision in REVISIONS.items()]
    runners = [await pod.start() for pod in pods]
    proxy = await EnvoyProxy(tmp_path / "envoy").start()
    async with aiohttp.ClientSession() as session:
        yield Bench(proxy, pods, session)
    await proxy.stop()
    for runner in runners:
        await runner.cleanup()


@pytest_asyncio.fixture
async def prometheus(bench: Bench, tmp_path: Path) -> AsyncIterator[Prometheus]:
    api = await StubApi().start()
    targets = [envoy_target(bench.proxy.envoy_admin_url)]
    prometheus = Prometheus(
        api.url, TOKEN, None, work_dir=tmp_path / "prometheus", scrape_interval=0.5, extra_targets=targets
    )
    yield await prometheus.start()
    await prometheus.stop()
    await api.stop()


async def test_every_answer_is_counted_once_with_its_destination(bench: Bench, prometheus: Prometheus) -> None:
    bench.pods[1].status = 503
    await bench.show(scene("weighted")["objects"])
    answers = await bench.send(60) + await bench.send(4, "nobody.example.com")
    (total,) = await query(prometheus, "sum(istio_requests_total) == 64")
    assert total["value"][1] == "64"
    by_code = await query(prometheus, "sum by (response_code, destination_workload) (istio_requests_total)")
    counted = {(item["metric"]["response_code"], item["metric"]["destination_workload"]) for item in by_code}
    assert counted == {("200", "v1-aaaa"), ("503", "v2-bbbb"), ("404", "unknown")}
    # The retries of a 503 reach the pod, but are one request.
    (failed,) = await query(prometheus, 'istio_requests_total{response_code="503"}')
    assert int(failed["value"][1]) == answers["503"] < len(bench.pods[1].requests)
    labels = failed["metric"]
    assert labels["reporter"] == "source"
    assert labels["destination_service"] == HOST
    assert (labels["destination_service_name"], labels["destination_service_namespace"]) == ("sentiment", "nlp")
    (durations,) = await query(prometheus, 'sum(istio_request_duration_milliseconds_count{response_code="200"})')
    assert int(durations["value"][1]) == answers["200 10.244.0.1"]
