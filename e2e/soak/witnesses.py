"""What must never be seen, looked for all the time and at the end."""

import asyncio
import collections
import json
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slipway.kube.kinds import CHILDREN, POD

from e2e.bench.operator_load.following import Following
from e2e.demo.load import Answer
from e2e.sandbox.controllers.client import DEPLOYMENTS, ApiError, Obj, Resource
from e2e.soak.acts import BAD, MAIN, MOST_REPLICAS, OWNER, Scene, Window
from e2e.soak.pair import Sample
from tests.integration.bench import DESTINATION_RULES, VIRTUAL_SERVICES

__all__ = ["Watchman", "disagreements", "grown", "lost", "orphans", "two_writers"]

REFUSED = 500
YOUNG = 30.0
"""Seconds until a process has taken what it needs."""
MOST_GROWTH = 40.0
"""MiB that a process may have more at the end than when it was no longer young."""
MOST_FILES, MOST_THREADS = 120, 60


class Watchman:
    """Looks at every change of routes and Deployments as it comes."""

    def __init__(self, scene: Scene) -> None:
        client, namespace = scene.bench.client, scene.bench.namespace
        self._scene = scene
        self._rules = Following(client, DESTINATION_RULES, namespace)
        self._routes = Following(client, VIRTUAL_SERVICES, namespace, self._route)
        self._deployments = Following(client, DEPLOYMENTS, namespace, self._deployment)
        self.problems: list[str] = []
        self.looks: collections.Counter[str] = collections.Counter()
        self._due: asyncio.Queue[Obj] = asyncio.Queue()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with self._rules.running(), self._routes.running(), self._deployments.running():
            while True:
                await self._check_pods(await self._due.get())

    def _say(self, text: str) -> None:
        self.problems.append(f"{datetime.now():%H:%M:%S} {text}")

    def _route(self, route: Obj) -> None:
        name, weights = route["metadata"]["name"], weights_of(route)
        self.looks["routes"] += 1
        if weights and (sum(weights.values()) != 100 or min(weights.values()) < 0):
            self._say(f"{name}: weights {weights}")
        self._due.put_nowait(route)

    async def _check_pods(self, route: Obj) -> None:
        """Weight needs a subset in the rule and a ready pod; both are read after the route was seen."""
        name, weights = route["metadata"]["name"], {one for one, weight in weights_of(route).items() if weight}
        begun = time.time()
        try:
            ready = set(await self._scene.ready_pods(name))
            rule = await self._scene.bench.get(DESTINATION_RULES, name)
            now = await self._scene.bench.get(VIRTUAL_SERVICES, name)
        except ApiError as error:
            if not error.not_found:
                raise
            return
        if now["metadata"]["resourceVersion"] != route["metadata"]["resourceVersion"]:
            return
        subsets = {subset["name"] for subset in rule["spec"].get("subsets") or ()}
        if weights - subsets:
            self._say(f"{name}: weight for {sorted(weights - subsets)}, which is no subset")
        if weights - ready and ready and not _excused(begun, begun, self._scene.windows):
            self._say(f"{name}: weight for {sorted(weights - ready)}, which has no ready pod")

    def _deployment(self, deployment: Obj) -> None:
        self.looks["deployments"] += 1
        replicas = int(deployment["spec"].get("replicas", 1))
        if not 0 <= replicas <= MOST_REPLICAS:
            self._say(f"{deployment['metadata']['name']}: {replicas} replicas")


def weights_of(route: Obj) -> dict[str, int]:
    """Weights by subset in the route that unpinned requests take."""
    default: Obj = next((item for item in route["spec"].get("http") or () if item.get("name") == "default"), {})
    return {one["destination"]["subset"]: int(one.get("weight", 100)) for one in default.get("route") or ()}


def _excused(begin: float, end: float, windows: Iterable[Window]) -> bool:
    return any(window.begin <= end and begin <= window.end for window in windows)


def lost(answers: Iterable[Answer], windows: Sequence[Window]) -> tuple[list[Answer], int]:
    """Failed requests that nothing excuses, and the number of those that something does.

    Excused is what the bad version answered itself, and what was under way while a killed pod was being replaced.
    """
    failed = [answer for answer in answers if answer.code != 200]
    inexcusable = [
        answer
        for answer in failed
        if not (answer.version == BAD and answer.code == REFUSED)
        and not _excused(answer.at, answer.at + answer.seconds, windows)
    ]
    return inexcusable, len(failed) - len(inexcusable)


def two_writers(audit: Path, users: Sequence[str]) -> tuple[list[str], int]:
    """Writes of one operator after those of another without its having taken the lease anew; and how many writes."""
    found, writes, writer = [], 0, ""
    renewed: set[str] = set()
    for line in audit.read_text().splitlines():
        event = json.loads(line)
        user, resource = event["user"]["username"], event["objectRef"]["resource"]
        if user not in users or event["verb"] in ("get", "list", "watch") or resource == "events":
            continue
        if resource == "leases":
            renewed.add(user)
            continue
        writes += 1
        if user != writer:
            if user not in renewed:
                found.append(f"{event['requestReceivedTimestamp']}: {user} writes {resource} after {writer}")
            writer, renewed = user, {user}
    return found, writes


async def orphans(scene: Scene, name: str, seconds: float) -> list[str]:
    """What is left of a ModelDeployment so many seconds after it was deleted."""
    left: list[str] = []
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        left = []
        for kind in (*CHILDREN, POD):
            resource = Resource(kind.group, kind.version, kind.plural, kind.name)
            with_owner = [obj for obj in await _items(scene, resource) if _owner(obj) == name]
            left += [f"{kind.name} {obj['metadata']['name']} is left of {name}" for obj in with_owner]
        if not left:
            return []
        await asyncio.sleep(0.5)
    return left


def _owner(obj: Obj) -> str:
    return str((obj["metadata"].get("labels") or {}).get(OWNER, ""))


async def _items(scene: Scene, resource: Resource) -> list[Obj]:
    try:
        return await scene.bench.items(resource)
    except ApiError as error:
        if error.not_found:
            return []
        raise


async def disagreements(scene: Scene) -> list[str]:
    """Where the status of an object at rest does not say what the cluster holds."""
    status = await scene.bench.status(MAIN)
    entries = {entry["revision"]: entry for entry in status["versions"]}
    deployments = {one["metadata"]["name"]: one for one in await scene.bench.items(DEPLOYMENTS) if _owner(one) == MAIN}
    weights = weights_of(await scene.bench.get(VIRTUAL_SERVICES, MAIN))
    subsets = (await scene.bench.get(DESTINATION_RULES, MAIN))["spec"].get("subsets") or ()
    ready = {name: len(pods) for name, pods in (await scene.ready_pods(MAIN)).items()}
    facts: tuple[tuple[str, Any, Any], ...] = (
        ("revisions with a Deployment", sorted(entries), sorted(deployments)),
        ("subsets", sorted(n for n, e in entries.items() if e.get("subset")), sorted(one["name"] for one in subsets)),
        ("weights", _numbers(entries, lambda e: e["weight"]["applied"]), {n: w for n, w in weights.items() if w}),
        (
            "replicas",
            {name: entry["replicas"] for name, entry in entries.items()},
            {name: one["spec"].get("replicas", 1) for name, one in deployments.items()},
        ),
        ("ready pods", _numbers(entries, lambda e: e["readyReplicas"]), ready),
    )
    return [f"{what}: status says {said}, the cluster {held}" for what, said, held in facts if said != held]


def _numbers(entries: dict[str, Any], read: Callable[[Any], int]) -> dict[str, int]:
    return {name: read(entry) for name, entry in entries.items() if read(entry)}


def grown(samples: dict[int, list[Sample]]) -> tuple[list[str], float]:
    """Operator processes that went on growing, and the most memory that any had in MiB."""
    found, most = [], 0.0
    for pid, history in samples.items():
        most = max([most, *(one.megabytes for one in history)])
        grown_up = [one for one in history if one.age > YOUNG]
        if grown_up and grown_up[-1].megabytes - grown_up[0].megabytes > MOST_GROWTH:
            found.append(f"process {pid} grew from {grown_up[0].megabytes:.0f} to {grown_up[-1].megabytes:.0f} MiB")
        if any(one.files > MOST_FILES or one.threads > MOST_THREADS for one in history):
            found.append(
                f"process {pid} had {max(o.files for o in history)} files, {max(o.threads for o in history)} threads"
            )
    return found, most
