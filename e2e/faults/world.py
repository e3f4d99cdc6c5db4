"""One ModelDeployment in a cluster in virtual time, with everything around it, and what must never be seen there."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from slipway.api.timestamps import parse_time
from slipway.engine.engine import Settings
from slipway.kube.kinds import CHILDREN, MODEL_DEPLOYMENT, SERVICE

from e2e.faults.api import Api, Obj
from e2e.faults.demand import Demand
from e2e.faults.injection import Plan
from e2e.faults.mesh import Mesh
from e2e.faults.nodes import Nodes
from e2e.faults.operators import Operator
from e2e.sandbox.apiserver.store import Change

__all__ = ["LAG", "NAME", "STEPS", "Wall", "World"]

NAME = "m"
EPOCH = 1_767_225_600.0
STEPS = (10, 50)
HOLD, INTERVAL, SETTLE, LAG = 10, 10, 2, 1.8
POLL = 0.25


@dataclass
class Wall:
    """The clock on the wall, which may be put forward and back."""

    offset: float = 0.0

    def __call__(self) -> float:
        """Seconds since the epoch."""
        return EPOCH + asyncio.get_running_loop().time() + self.offset


def spec_of(
    serve: str, *names: str, last_hold: float = HOLD, rollout: Mapping[str, Any] | None = None, **more: Any
) -> Obj:
    """A spec whose rollouts take a minute and wait for evidence; ``last_hold`` are the seconds of the last step.

    ``rollout`` replaces fields of the rollout, ``more`` fields of the spec.
    """
    holds = [*([HOLD] * (len(STEPS) - 1)), last_hold]
    paced = {
        "steps": [{"weight": weight, "hold": f"{hold:g}s"} for weight, hold in zip(STEPS, holds, strict=True)],
        "keepPrevious": "10s",
        "progressDeadline": "5m",
        "analysis": {
            "interval": f"{INTERVAL}s",
            "checks": [{"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"}],
        },
    }
    plain = {
        "versions": [{"name": name, "uri": f"file:///models/{name}"} for name in names],
        "serve": serve,
        "traffic": {"settle": f"{SETTLE}s"},
        "rollout": paced | dict(rollout or {}),
        "autoscaling": {"minReplicas": 1, "maxReplicas": 4, "qps": {"target": 60}},
    }
    return plain | more


@dataclass
class World:
    """One namespace of an API server that may have served others before."""

    api: Api
    namespace: str
    wall: Wall
    mesh: Mesh
    nodes: Nodes
    demand: Demand
    operators: list[Operator] = field(default_factory=list)
    statuses: list[Obj] = field(default_factory=list)
    """Every status that was stored, in order."""
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    _end: Callable[[], None] = lambda: None
    _serial = itertools.count(1)

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, api: Api, wall: Wall, namespace: str = "") -> AsyncIterator["World"]:
        """A namespace of its own, without an operator."""
        namespace = namespace or f"n{next(cls._serial)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await api.ask("POST", "/api/v1/namespaces", body)
        mesh = Mesh(api, namespace, NAME, LAG)
        world = cls(api, namespace, wall, mesh, Nodes(api, namespace, wall), Demand(api, mesh, wall))
        world.attach()
        world.tasks.append(asyncio.ensure_future(world.demand.run()))
        try:
            yield world
        finally:
            for operator in world.operators:
                await operator.stop()
            for task in world.tasks:
                task.cancel()
            world.detach()
            world._clear()

    def attach(self) -> None:
        """Listen to the store."""
        self.mesh.start()
        self.nodes.start()
        self._end = self.api.listen(MODEL_DEPLOYMENT, self._note)

    def detach(self) -> None:
        """Listen no more."""
        self.mesh.stop()
        self.nodes.stop()
        self._end()

    def _clear(self) -> None:
        """Leave nothing behind, nor the memory of it: nobody will ask for changes from before."""
        for name, key, _ in list(self.api.cluster.store.everything()):
            if self.namespace in key:
                self.api.cluster.store.delete(name, key)
        for shelf in self.api.cluster.store.shelves.values():
            shelf.changes.clear()

    def _note(self, change: Change) -> None:
        obj = change.new.obj
        if obj["metadata"].get("namespace") == self.namespace and obj.get("status"):
            self.statuses.append(obj["status"])

    def operator(self, plan: Plan | None = None, **settings: Any) -> Operator:
        """Start an operator."""
        plain = Settings(
            namespaces=(self.namespace,), http_host="127.0.0.1", http_port=0, identity=f"op-{len(self.operators)}"
        )
        chosen = dataclasses.replace(plain, **settings)
        made = Operator(self.api, chosen, self.wall, self.demand, plan)
        self.operators.append(made)
        made.start()
        return made

    async def declare(self, serve: str, *names: str, **more: Any) -> Obj:
        """Server-side apply by a user."""
        obj = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.name,
            "metadata": {"namespace": self.namespace, "name": NAME},
            "spec": spec_of(serve, *names, **more),
        }
        path = MODEL_DEPLOYMENT.path(self.namespace, NAME)
        return await self.api.ask("PATCH", path, obj, content_type="application/apply-patch+yaml")

    async def patch_status(self, status: Obj | None) -> None:
        """Merge-patch the status, as people and pipelines do."""
        path = MODEL_DEPLOYMENT.path(self.namespace, NAME, "status")
        await self.api.ask("PATCH", path, {"status": status}, content_type="application/merge-patch+json")

    async def act(self, verb: str) -> str:
        """Write an action; gives its id."""
        name = f"{verb}-{len(self.statuses)}"
        await self.patch_status({"action": {"id": name, "verb": verb, "by": "user"}})
        return name

    async def acted(self, verb: str) -> str:
        """Write an action and wait for its answer; gives its id."""
        name = await self.act(verb)
        await self.until(f"an answer to {verb}", lambda status: status.get("lastAction", {}).get("id") == name)
        return name

    async def delete(self) -> None:
        """Delete the ModelDeployment."""
        self.mesh.armed = False
        await self.api.ask("DELETE", MODEL_DEPLOYMENT.path(self.namespace, NAME))

    @property
    def status(self) -> Obj:
        """The status now; empty when there is none."""
        found = self.api.find(MODEL_DEPLOYMENT, self.namespace, NAME)
        return (found or {}).get("status") or {}

    async def until(self, what: str, holds: Callable[[Obj], Any], seconds: float = 400.0) -> Obj:
        """Wait for a status; raises AssertionError when it does not come in so many virtual seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not holds(self.status):
            if loop.time() > end:
                raise AssertionError(f"{what}: not within {seconds:g} s; status: {self.status}")
            await asyncio.sleep(POLL)
        return self.status

    async def finished(self, version: str, outcome: str, alone: str, seconds: float = 400.0) -> None:
        """Wait until a version's rollout has ended, and no other version but one lives."""

        def over(status: Obj) -> bool:
            history, rollout = status.get("history") or [{}], status.get("rollout") or {}
            return (
                (history[-1].get("to"), history[-1].get("outcome")) == (version, outcome)
                and (rollout.get("stage"), rollout.get("to")) == ("Finished", version)
                and [entry["name"] for entry in status["versions"]] == [alone]
            )

        await self.until(f"{version} {outcome}, only {alone} lives", over, seconds)

    async def at(self, version: str, weight: int) -> None:
        """Wait until a candidate stands at a weight."""

        def there(status: Obj) -> bool:
            entry = next((one for one in status.get("versions", ()) if one["name"] == version), None)
            stage = (status.get("rollout") or {}).get("stage")
            return stage == "Observing" and entry is not None and entry["weight"]["applied"] == weight

        await self.until(f"{version} at {weight} %", there)

    def children(self) -> dict[str, str]:
        """What the operator has made, by kind and name, without what differs from run to run."""
        found = {}
        for kind in CHILDREN:
            for obj in self.api.objects(kind, self.namespace):
                said = {name: obj[name] for name in ("spec", "data", "revision") if name in obj}
                if kind == SERVICE:
                    said["spec"] = {name: value for name, value in obj["spec"].items() if "clusterIP" not in name}
                found[f"{kind.name}/{obj['metadata']['name']}"] = orjson.dumps(
                    said, option=orjson.OPT_SORT_KEYS
                ).decode()
        return {name: text.replace(f"{NAME}.{self.namespace}.svc", f"{NAME}.NS.svc") for name, text in found.items()}

    def end(self) -> Obj:
        """The end state, to be compared with that of another run."""
        status = self.status
        versions = [
            {name: entry.get(name) for name in ("name", "role", "weight", "replicas", "subset", "revision")}
            for entry in status.get("versions", ())
        ]
        return {
            "children": self.children(),
            "stored": self._stored(),
            "phase": status.get("phase"),
            "stable": status.get("stable"),
            "versions": versions,
            "history": [(entry["id"], entry["to"], entry["outcome"]) for entry in status.get("history", ())],
        }

    def _stored(self) -> list[str]:
        """Kind and name of whatever is in the namespace, by whomever; Events go by themselves."""
        everything = self.api.cluster.store.everything()
        return sorted(
            f"{shelf}/{key[-1]}" for shelf, key, _ in everything if key[0] == self.namespace and "event" not in shelf
        )

    def faults(self) -> list[str]:
        """Everything seen so far that must never be: lost requests, skipped steps, evidence counted twice."""
        return [*self.mesh.lost, *_skipped(self.statuses), *self._counted_twice()]

    def _counted_twice(self) -> list[str]:
        found = []
        for before, after in itertools.pairwise(_evidence(self.statuses)):
            if before[:1] != after[:1]:
                continue
            (_, _, end, windows, total), (_, _, later, more, bigger) = before, after
            if more - windows > round((later - end) / INTERVAL) and windows:
                found.append(f"{more - windows} windows counted within {later - end:g} s")
            if bigger < total or more < windows:
                found.append(f"evidence went from {total} requests in {windows} windows to {bigger} in {more}")
        for rollout, stable, end, _, total in _evidence(self.statuses):
            served = self._served(end, other_than=stable)
            if total > served + self.demand.qps:
                found.append(f"{rollout}: {total} requests counted, {served} served")
        return found

    def _served(self, until: float, other_than: str) -> float:
        """Requests that any revision but the stable one can have answered by then."""
        known = [counts for at, counts in self.demand.served if at <= until + INTERVAL]
        return max((value for name, value in (known[-1] if known else {}).items() if name != other_than), default=0.0)


def _evidence(statuses: list[Obj]) -> list[tuple[str, str, float, int, int]]:
    """Rollout, stable revision, end of the last window, windows and requests of the candidate, per status with some."""
    found = []
    for status in statuses:
        for check in status.get("analysis") or ():
            if check.get("window"):
                total = int((check.get("candidate") or {}).get("requests", 0))
                end = parse_time(check["window"]) or 0.0
                stable = (status.get("rollout") or {}).get("fromRevision", "")
                found.append((check.get("rollout", ""), stable, end, int(check.get("windows", 0)), total))
    return found


def _skipped(statuses: list[Obj]) -> list[str]:
    found = []
    for before, after in itertools.pairwise(status["rollout"] for status in statuses if status.get("rollout")):
        if before["id"] == after["id"] and not 0 <= after.get("step", 0) - before.get("step", 0) <= 1:
            found.append(f"from step {before.get('step', 0)} to {after.get('step', 0)}")
    return found
