"""A real Prometheus over a pod, an Envoy's worth of targets and the simulated GPUs."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from e2e.sandbox.telemetry import Prometheus, ScrapeTarget, SimulatedDcgmExporter, dcgm_target
from tests.istio_wire.stub_api import TOKEN, StubApi

POD_ADDRESS = "127.244.1.1"


class BusyPod:
    """A pod's metrics: an executor that is busy for a settable share of the time."""

    def __init__(self) -> None:
        self.share = 0.5
        self._busy = 0.0
        self._asked = 0.0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        application.router.add_get("/custom", self._metrics)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, POD_ADDRESS, 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        now = asyncio.get_running_loop().time()
        self._busy += self.share * (now - self._asked if self._asked else 0.0)
        self._asked = now
        return web.Response(
            text="# TYPE slipway_executor_busy_seconds_total counter\n"
            f'slipway_executor_busy_seconds_total{{model="m",version="v1",revision="m-v1-00000000"}} {self._busy}\n'
        )

    def manifest(self) -> dict[str, Any]:
        annotations = {"scrape": "true", "port": str(self.port), "path": "/custom"}
        return {
            "metadata": {
                "name": "m-1",
                "namespace": "nlp",
                "annotations": {f"prometheus.io/{key}": value for key, value in annotations.items()},
            },
            "spec": {
                "nodeName": "node-0",
                "containers": [
                    {
                        "name": "server",
                        "ports": [{"containerPort": self.port}, {"containerPort": 9000}],
                        "resources": {"limits": {"nvidia.com/gpu": "2"}},
                    }
                ],
            },
            "status": {"phase": "Running", "podIP": POD_ADDRESS},
        }


@pytest_asyncio.fixture
async def api() -> AsyncIterator[StubApi]:
    stub = await StubApi().start()
    yield stub
    await stub.stop()


@pytest_asyncio.fixture
async def pod(api: StubApi) -> AsyncIterator[BusyPod]:
    busy = BusyPod()
    await busy.start()
    await api.put("/api/v1/pods", busy.manifest())
    status = {"capacity": {"nvidia.com/gpu": "4"}}
    await api.put("/api/v1/nodes", {"metadata": {"name": "node-0"}, "status": status})
    yield busy
    await busy.stop()


async def query(prometheus: Prometheus, text: str) -> list[dict[str, Any]]:
    """The result of an instant query, as soon as there is one."""
    async with asyncio.timeout(120), aiohttp.ClientSession(prometheus.url) as session:
        while True:
            async with session.get("/api/v1/query", params={"query": text}) as answer:
                result: list[dict[str, Any]] = (await answer.json())["data"]["result"]
            if result:
                return result
            await asyncio.sleep(0.1)


async def test_pods_and_simulated_gpus_arrive_with_the_labels_of_a_cluster(
    api: StubApi, pod: BusyPod, tmp_path: Path
) -> None:
    exporter = await SimulatedDcgmExporter(api.url, TOKEN, None, interval=0.2).start()
    targets = [dcgm_target(exporter.url), ScrapeTarget("operator", exporter.url, {"pod": "slipway-0"})]
    prometheus = Prometheus(
        api.url, TOKEN, None, work_dir=tmp_path / "prometheus", scrape_interval=0.5, extra_targets=targets
    )
    try:
        await prometheus.start()
        (up,) = await query(prometheus, 'up{job="kubernetes-pods"} == 1')
        assert up["metric"].keys() == {"__name__", "instance", "job", "namespace", "pod", "node"}
        assert (up["metric"]["namespace"], up["metric"]["pod"], up["metric"]["node"]) == ("nlp", "m-1", "node-0")
        busy = await query(
            prometheus, 'DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter",exported_pod="m-1",exported_namespace="nlp"} > 30'
        )
        assert {item["metric"]["gpu"] for item in busy} == {"0", "1"}
        assert {item["metric"]["exported_container"] for item in busy} == {"server"}
        assert {item["metric"]["modelName"] for item in busy} == {"Simulated GPU"}
        idle = await query(prometheus, 'DCGM_FI_DEV_GPU_UTIL{job="dcgm-exporter",exported_pod=""}')
        assert {item["metric"]["gpu"] for item in idle} == {"2", "3"}
        assert await query(prometheus, 'up{job="operator",pod="slipway-0"} == 1')
    finally:
        await prometheus.stop()
        await exporter.stop()


async def test_utilization_follows_the_executor(api: StubApi, pod: BusyPod) -> None:
    exporter = await SimulatedDcgmExporter(api.url, TOKEN, None, interval=0.1).start()
    try:
        for share in (0.5, 0.0, 1.0):
            pod.share = share
            await reads(exporter, 100 * share)
    finally:
        await exporter.stop()


async def reads(exporter: SimulatedDcgmExporter, expected: float) -> None:
    """Wait until both GPUs of the pod read about that many per cent."""
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        while True:
            async with session.get(exporter.url) as answer:
                lines = (await answer.text()).splitlines()
            values = [
                float(line.split()[-1]) for line in lines if line.startswith("DCGM_FI_DEV_GPU_UTIL") and "m-1" in line
            ]
            if len(values) == 2 and all(abs(value - expected) <= 10 for value in values):
                return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("gone", [True, False])
async def test_a_pod_without_executor_metrics_counts_by_its_process(api: StubApi, gone: bool) -> None:
    """The node agent says which process is behind the pod; here that is this one, or one that has ended."""
    application = web.Application()
    entry = {
        "namespace": "nlp",
        "name": "plain",
        "containers": [{"name": "server", "pid": None if gone else os.getpid(), "gpus": [3]}],
    }

    async def pods(_: web.Request) -> web.Response:
        return web.json_response([entry])

    application.router.add_get("/sandbox/pods", pods)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    endpoint = {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"capacity": {"nvidia.com/gpu": "4"}, "daemonEndpoints": endpoint, "addresses": addresses}
    await api.put("/api/v1/nodes", {"metadata": {"name": "node-0"}, "status": status})
    container = {"name": "server", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    await api.put(
        "/api/v1/pods",
        {
            "metadata": {"name": "plain", "namespace": "nlp"},
            "spec": {"nodeName": "node-0", "containers": [container]},
            "status": {"phase": "Running", "podIP": "127.244.1.9"},
        },
    )
    exporter = await SimulatedDcgmExporter(api.url, TOKEN, None, interval=0.1).start()
    try:
        used = await memory_of(exporter, "plain")
        assert used[0] == "3"
        assert (used[1] > 0) is not gone
    finally:
        await exporter.stop()
        await runner.cleanup()


async def memory_of(exporter: SimulatedDcgmExporter, pod: str) -> tuple[str, float]:
    """GPU number and used MiB of a pod's only GPU."""
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        while True:
            async with session.get(exporter.url) as answer:
                for line in (await answer.text()).splitlines():
                    if line.startswith("DCGM_FI_DEV_FB_USED") and f'pod="{pod}"' in line:
                        return line.split('gpu="')[1].split('"')[0], float(line.split()[-1])
            await asyncio.sleep(0.05)
