"""The phases of the measurement, one after the other."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.operator_load.bare import copies, create_all, delete_all, family
from e2e.bench.operator_load.figures import Exposition, Usage, histogram_quantile, usage_of
from e2e.bench.operator_load.following import Following, until
from e2e.bench.operator_load.hollow import HollowNode
from e2e.bench.operator_load.report import Report, Rolling
from e2e.sandbox.cluster import Cluster
from e2e.sandbox.controllers.client import MERGE_PATCH, NAMESPACES, ApiClient, Obj, Resource
from tests.integration.operators import Operator
from tests.integration.role import objects as rights

__all__ = ["Course", "Plan"]

MODEL_DEPLOYMENTS = Resource("slipway.dev", "v1alpha1", "modeldeployments", "ModelDeployment")
VIRTUAL_SERVICES = Resource("networking.istio.io", "v1", "virtualservices", "VirtualService")
PROBED, BARE, LOAD = "probed", "bare", "load"
"""Namespaces: of the ModelDeployment whose objects are copied, of the bare client, of the load."""
PATIENCE = 60.0
PATIENCE_EACH = 1.0
"""Seconds for one phase: to begin with, and for each ModelDeployment in it."""
QUIET = 5.0
"""Seconds without a change after which things count as settled."""
ROLLING = 10
EDITS = 60
"""Edits whose way to the VirtualService is timed."""
EDIT_EVERY = 0.5


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    objects: int
    batch: int
    batches: int
    idle: float
    at_once: int


def declared(name: str, namespace: str) -> Obj:
    """A ModelDeployment of three versions, whose rollouts take seconds."""
    versions = [{"name": f"v{number}", "uri": f"https://models.example.com/v{number}.pt"} for number in (1, 2, 3)]
    return {
        "apiVersion": MODEL_DEPLOYMENTS.api_version,
        "kind": MODEL_DEPLOYMENTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "versions": versions,
            "serve": "v1",
            "runtime": {"resources": {"requests": {"cpu": "1"}}},
            "traffic": {"settle": "1s"},
            "rollout": {
                "steps": [{"weight": 50, "hold": "1s"}],
                "analysis": {"checks": []},
                "keepPrevious": "1s",
                "progressDeadline": "30m",
            },
        },
    }


class Course:
    """One run."""

    def __init__(self, cluster: Cluster, folder: Path, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._client: ApiClient = cluster.client("bench")
        flags = ("--prometheus-url", "", "--apis", "istio", "--log-level", "warning", "--tick", "5")
        self._flags = flags
        self._operator = Operator(cluster, folder, module="e2e.bench.operator_load.image")
        self._following = Following(self._client, MODEL_DEPLOYMENTS, LOAD)

    async def run(self) -> Report:
        """All phases."""
        async with self._client:
            await self._prepare()
            template = await self._template()
            _say(f"one ModelDeployment has {len(template)} objects")
            report = Report(self._plan.objects, len(template))
            report.bare = await self._bare(template)
            _say(f"bare client: {report.bare:.1f} s")
            async with self._running(LOAD):
                await self._measure(report)
        return report

    async def _prepare(self) -> None:
        for name in (PROBED, BARE, LOAD):
            await self._client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for obj in rights():
            group, _, version = obj["apiVersion"].rpartition("/")
            plural = f"{obj['kind'].lower()}s"
            await self._client.create(Resource(group, version, plural, obj["kind"], namespaced=False), obj)

    @contextlib.asynccontextmanager
    async def _running(self, namespace: str) -> AsyncIterator[None]:
        await self._operator.start(*self._flags, "--namespaces", namespace)
        try:
            self._following = Following(self._client, MODEL_DEPLOYMENTS, namespace)
            async with HollowNode(self._client, namespace), self._following.running():
                yield
        finally:
            await self._operator.stop()

    async def _template(self) -> list[tuple[Resource, Obj]]:
        """What the operator makes of one ModelDeployment."""
        async with self._running(PROBED):
            one = await self._client.create(MODEL_DEPLOYMENTS, declared("probed-0000", PROBED))
            await self._settled("one is ready", {"probed-0000"}, "v1")
            made = [(MODEL_DEPLOYMENTS, one), *await family(self._client, PROBED, "probed-0000")]
            await self._client.delete(MODEL_DEPLOYMENTS, one)
        return made

    async def _bare(self, template: list[tuple[Resource, Obj]]) -> float:
        """Seconds that a bare client takes to create the same and to see it ready."""
        names = [f"bare-{number:04}" for number in range(self._plan.objects)]
        families = [copies(template, BARE, "probed-0000", name) for name in names]
        async with HollowNode(self._client, BARE) as node:
            begun = time.monotonic()
            await create_all(self._client, families, self._plan.at_once)
            await until("pods of the bare client", lambda: node.ready >= len(names), _patience(names))
            seconds = time.monotonic() - begun
        await delete_all(self._client, families, self._plan.at_once)
        return seconds

    async def _measure(self, report: Report) -> None:
        names = [f"load-{number:04}" for number in range(self._plan.objects)]
        before, used = await self._metrics(), self._usage()
        begun = time.monotonic()
        await create_all(self._client, [[(MODEL_DEPLOYMENTS, declared(n, LOAD))] for n in names], self._plan.at_once)
        await self._settled("all are ready", set(names), "v1")
        report.converged = time.monotonic() - begun
        await self._quiet()
        after = await self._metrics()
        report.created = after.requests() - before.requests()
        report.cpu = self._usage().cpu - used.cpu
        report.reconciled = after.reconciles() - before.reconciles()
        _say(f"operator: {report.converged:.1f} s, {sum(report.created.values())} calls, {self._usage().peak:.0f} MiB")
        await self._batches(report, names)
        await self._idle(report)
        await self._rolling(report, names)
        report.peak = self._usage().peak

    async def _batches(self, report: Report, names: list[str]) -> None:
        """Roll all of them out, a batch at a time, to the next version and then to the one after."""
        size = self._plan.batch
        for number in range(self._plan.batches):
            first = number * size % len(names)
            chosen, version = names[first : first + size], f"v{2 + number * size // len(names) % 2}"
            begun, before, used = time.monotonic(), await self._metrics(), self._usage().cpu
            await self._serve(chosen, version)
            await self._settled(f"rolled out to {version}", set(chosen), version)
            seconds, after = time.monotonic() - begun, await self._metrics()
            spent = (
                sum((after.requests() - before.requests()).values()),
                after.reconciles() - before.reconciles(),
                self._usage().cpu - used,
            )
            report.batches.append(Rolling(seconds, *(amount / len(chosen) for amount in spent)))
            _say(f"{len(chosen)} rollouts at a time: {report.batches[-1].seconds:.1f} s")
        await self._quiet()

    async def _idle(self, report: Report) -> None:
        before, used, begun = await self._metrics(), self._usage(), time.monotonic()
        await asyncio.sleep(self._plan.idle)
        minutes = (time.monotonic() - begun) / 60
        calls = (await self._metrics()).requests() - before.requests()
        report.idle_reads = sum(count for (method, _), count in calls.items() if method == "GET") / minutes
        report.idle_writes = sum(count for (method, _), count in calls.items() if method != "GET")
        report.idle_cpu = (self._usage().cpu - used.cpu) / (60 * minutes)
        _say(f"idle: {report.idle_reads:.0f} reads a minute, {report.idle_writes} writes")

    async def _rolling(self, report: Report, names: list[str]) -> None:
        """Ten roll all the time; of the others some are edited, and the way of each edit to its route is timed."""
        rolling, idle = names[:ROLLING], names[ROLLING : ROLLING + EDITS]
        before = await self._metrics()
        async with asyncio.TaskGroup() as group:
            busy = group.create_task(self._keep_rolling(rolling))
            await asyncio.sleep(QUIET)
            report.edits = await self._edit(idle)
            busy.cancel()
        after = await self._metrics()
        name = "slipway_operator_reconcile_duration_seconds"
        for share in (0.5, 0.99):
            report.reconciles[share] = histogram_quantile(before.buckets(name), after.buckets(name), share)

    async def _keep_rolling(self, names: Sequence[str]) -> None:
        served = "v1"
        while True:
            await self._serve(names, served)
            await self._settled(f"kept rolling to {served}", set(names), served)
            served = "v3" if served == "v1" else "v1"

    async def _edit(self, names: Sequence[str]) -> list[float]:
        """Seconds from a changed timeout in the spec to the VirtualService that has it, of each name."""
        wanted = "47s"
        arrived: dict[str, float] = {}

        def note(route: Obj) -> None:
            if any(rule.get("timeout") == wanted for rule in (route.get("spec") or {}).get("http") or ()):
                arrived.setdefault(route["metadata"]["name"], time.monotonic())

        sent = {}
        async with Following(self._client, VIRTUAL_SERVICES, LOAD, note).running():
            for name in names:
                sent[name] = time.monotonic()
                await self._patch(name, {"traffic": {"resilience": {"timeout": wanted}}})
                await asyncio.sleep(EDIT_EVERY)
            await until("edits in their routes", lambda: set(sent) <= set(arrived), _patience(names))
        return [arrived[name] - sent[name] for name in names]

    async def _serve(self, names: Iterable[str], version: str) -> None:
        for name in names:
            await self._patch(name, {"serve": version})

    async def _patch(self, name: str, spec: Obj) -> None:
        path = MODEL_DEPLOYMENTS.path(LOAD, name)
        await self._client.request("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)

    async def _settled(self, what: str, names: set[str], version: str) -> None:
        await self._following.settled(what, names, _served(version), _patience(names))

    async def _quiet(self) -> None:
        """Wait until nothing changes any more, and until the last Event that waited is posted."""
        patience = _patience(self._following.objects)
        await self._following.quiet(QUIET, patience)
        written = -1
        async with asyncio.timeout(patience):
            while written != (now := await self._written()):
                written = now
                await asyncio.sleep(QUIET)

    async def _written(self) -> int:
        return sum(count for (method, _), count in (await self._metrics()).requests().items() if method != "GET")

    async def _metrics(self) -> Exposition:
        return await Exposition.of(f"http://127.0.0.1:{self._operator.port}/metrics")

    def _usage(self) -> Usage:
        child = self._operator.child
        if child is None:
            raise RuntimeError("the operator does not run")
        return usage_of(child.process.pid)


def _served(version: str) -> Callable[[Obj], bool]:
    """Whether a ModelDeployment is ready with this version, as of its newest generation."""

    def holds(obj: Obj) -> bool:
        status = obj.get("status") or {}
        seen = status.get("observedGeneration") == obj["metadata"]["generation"]
        return seen and (status.get("phase"), status.get("stable")) == ("Ready", version)

    return holds


def _patience(names: Sized) -> float:
    return PATIENCE + PATIENCE_EACH * len(names)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
