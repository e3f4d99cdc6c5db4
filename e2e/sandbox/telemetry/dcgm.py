"""A simulated stand-in for NVIDIA's DCGM exporter.

There is no GPU. A pod with an `nvidia.com/gpu` limit is taken to keep its GPUs busy for as long as its executor
says it was executing (or, where it does not say, for as long as its process used the CPU), and to fill their memory
with what it holds in RAM. The names and labels are the DCGM exporter's with pod mapping; each HELP text, and the label
`modelName="Simulated GPU"`, say what the numbers are.
"""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from e2e.sandbox.mesh.reflector import ApiAccess, Reflector
from e2e.sandbox.node.gpus import GpuTable
from e2e.sandbox.telemetry.gpus import (
    DEFAULT_MEMORY_MIB,
    BusySample,
    GpuHolder,
    GpuReading,
    ReadingsCollector,
    allocate,
    busy_seconds,
    memory_mib,
    utilization,
)
from e2e.sandbox.telemetry.processes import NodeAgents, ProcessUse, process_use

Json = dict[str, Any]

HOST = "127.0.0.1"
GPU_RESOURCE = "nvidia.com/gpu"
SCRAPE_SECONDS = 2.0

_log = logging.getLogger(__name__)


class SimulatedDcgmExporter:
    """Serves `/metrics` at `url`; readings are taken every `interval` seconds."""

    def __init__(
        self,
        api_url: str,
        token: str,
        ca_file: Path | None,
        *,
        interval: float = 1.0,
        listen_port: int = 0,
        memory_mib: float = DEFAULT_MEMORY_MIB,
    ) -> None:
        access = ApiAccess(api_url, token, ca_file)
        self._nodes = Reflector(access, "/api/v1/nodes", lambda: None)
        self._pods = Reflector(access, "/api/v1/pods", lambda: None)
        self._interval = interval
        self._listen_port = listen_port
        self._collector = ReadingsCollector(memory_mib)
        self._registry = CollectorRegistry()
        self._registry.register(self._collector)
        self._samples: dict[GpuHolder, BusySample] = {}
        self._busy: dict[GpuHolder, float] = {}
        self._allocated: dict[str, dict[GpuHolder, tuple[int, ...]]] = {}
        self._runner: web.AppRunner | None = None
        self._task: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> Self:
        """Serve the metrics and begin to take readings."""
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self._listen_port).start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}/metrics"
        for reflector in (self._nodes, self._pods):
            reflector.start()
        await asyncio.gather(self._nodes.listed(), self._pods.listed())
        self._task = asyncio.create_task(self._follow(), name="simulated DCGM exporter")
        return self

    async def stop(self) -> None:
        """Stop reading and serving."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for reflector in (self._nodes, self._pods):
            await reflector.stop()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _follow(self) -> None:
        timeout = aiohttp.ClientTimeout(total=SCRAPE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            agents = NodeAgents(session)
            while True:
                started = time.monotonic()
                try:
                    self._collector.readings = await self._read(session, agents)
                except (KeyError, ValueError) as error:
                    _log.warning("no GPU readings: %r", error)
                await asyncio.sleep(max(0.0, started + self._interval - time.monotonic()))

    async def _read(self, session: aiohttp.ClientSession, agents: NodeAgents) -> tuple[GpuReading, ...]:
        pods = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in self._pods.objects if _running(pod)
        }
        readings: list[GpuReading] = []
        present: set[GpuHolder] = set()
        for node in self._nodes.objects:
            name = node["metadata"]["name"]
            count = int(node.get("status", {}).get("capacity", {}).get(GPU_RESOURCE, 0))
            if not count:
                continue
            on_node = [pod for pod in pods.values() if pod["spec"].get("nodeName") == name]
            processes = await agents.processes(node)
            holders = self._holders(name, count, on_node, processes)
            present |= holders.keys()
            used = await asyncio.gather(
                *(self._use(session, pods[holder.namespace, holder.pod], holder, processes) for holder in holders)
            )
            readings += _readings(name, count, holders, dict(zip(holders, used, strict=True)))
        self._samples = {holder: sample for holder, sample in self._samples.items() if holder in present}
        self._busy = {holder: busy for holder, busy in self._busy.items() if holder in present}
        return tuple(readings)

    def _holders(
        self, node: str, count: int, pods: list[Json], processes: dict[GpuHolder, ProcessUse]
    ) -> dict[GpuHolder, tuple[int, ...]]:
        """Which container has which GPUs: as the node agent says, else by a rule of our own."""
        wanted = [
            (GpuHolder(pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"]), number)
            for pod in pods
            for container in pod["spec"]["containers"]
            if (number := int(container.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0)))
        ]
        told = {holder: processes[holder].gpus for holder, _ in wanted if holder in processes}
        kept = {**self._allocated.get(node, {}), **told}
        self._allocated[node] = allocate(count, wanted, kept)
        return self._allocated[node]

    async def _use(
        self, session: aiohttp.ClientSession, pod: Json, holder: GpuHolder, processes: dict[GpuHolder, ProcessUse]
    ) -> tuple[float, float]:
        """Utilisation in per cent and used MiB of a container."""
        process = processes.get(holder)
        cpu_seconds, resident = process_use(process.pid) if process and process.pid else (None, 0.0)
        seconds, source = await _executor_seconds(session, pod), "executor"
        if seconds is None:
            seconds, source = cpu_seconds, "cpu"
        if seconds is not None:
            sample = BusySample(time.monotonic(), seconds, source)
            busy = utilization(self._samples.get(holder), sample)
            self._samples[holder] = sample
            if busy is not None:
                self._busy[holder] = busy
        return self._busy.get(holder, 0.0), memory_mib(resident)


def _running(pod: Json) -> bool:
    status = pod.get("status", {})
    return status.get("phase") == "Running" and bool(status.get("podIP"))


async def _executor_seconds(session: aiohttp.ClientSession, pod: Json) -> float | None:
    annotations = pod["metadata"].get("annotations", {})
    port = annotations.get("prometheus.io/port", "8080")
    path = annotations.get("prometheus.io/path", "/metrics")
    try:
        async with session.get(f"http://{pod['status']['podIP']}:{port}{path}") as answer:
            return busy_seconds(await answer.text()) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError):
        return None


def _readings(
    node: str, count: int, holders: dict[GpuHolder, tuple[int, ...]], used: dict[GpuHolder, tuple[float, float]]
) -> list[GpuReading]:
    by_index = {index: holder for holder, indices in holders.items() for index in indices}
    readings = []
    for index in range(count):
        holder = by_index.get(index)
        busy, mib = used[holder] if holder else (0.0, 0.0)
        share = mib / len(holders[holder]) if holder else 0.0
        readings.append(GpuReading(node, index, simulated_uuid(node, index), holder, busy, share))
    return readings


def simulated_uuid(node: str, index: int) -> str:
    """The id of a simulated GPU, the same that the node agent tells its pods."""
    return GpuTable(node, index + 1).identity(index)
