"""What may be done to ModelDeployments and to what they run on, drawn at random."""

import asyncio
import contextlib
import random
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.valve import Valve
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import MERGE_PATCH, PODS, ApiError, Obj
from e2e.soak.pair import Pair
from tests.integration.bench import MODEL_DEPLOYMENTS, Bench

__all__ = ["ACTS", "BAD", "MAIN", "MOST_REPLICAS", "SETTLE", "VISITOR", "Scene", "Window"]

MAIN, VISITOR = "main", "visitor"
"""The ModelDeployment under load, and the one that comes and goes."""
GOOD = ("v1", "v2", "v3")
BAD = "bad"
"""The version whose answers are errors: a check has to find that out."""
MOST_REPLICAS = 3
ERRORS = {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"}
"""Wide bounds, so that some dozens of requests are enough for a verdict."""
SETTLE = 2.0
"""Seconds, longer than the mesh is ever late."""
LATEST_MESH = 0.8
AFTERWARDS = 4.0
"""Seconds after a killed pod was replaced until every Envoy knows."""
LONGEST = 60.0
REVISION = "slipway.dev/revision"
OWNER = "slipway.dev/model-deployment"


@dataclass
class Window:
    """A time in which requests may fail, in seconds since the epoch."""

    begin: float
    why: str
    end: float = float("inf")


@dataclass
class Scene:
    """Everything that acts act on."""

    bench: Bench
    sandbox: Sandbox
    pair: Pair
    prometheus: Valve
    draw: random.Random
    windows: list[Window] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else."""
        self.tasks.add(asyncio.create_task(work))

    async def ready_pods(self, name: str) -> dict[str, list[Obj]]:
        """Pods that are ready and stay, by revision."""
        found: dict[str, list[Obj]] = {}
        for pod in await self.bench.items(PODS):
            labels = pod["metadata"].get("labels") or {}
            if labels.get(OWNER) == name and _stays_ready(pod):
                found.setdefault(labels[REVISION], []).append(pod)
        return found


def _stays_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def declared(scene: Scene, name: str, serve: str) -> dict[str, Any]:
    """Three good versions, one that answers half of all requests with errors, and one that never loads."""
    artefacts = {"v1": "good-1", "v2": "good-2", "v3": "good-1", BAD: "failing", "broken": "corrupt"}
    names = artefacts if name == MAIN else GOOD[:2]
    return scene.bench.declare(
        name,
        *(scene.bench.version(version, artefacts[version]) for version in names),
        serve=serve,
        traffic={"settle": f"{SETTLE:g}s"},
        rollout={
            "steps": [{"weight": 25, "hold": "2s"}, {"weight": 50, "hold": "2s"}],
            "progressDeadline": "40s",
            # The visitor has no requests to judge by.
            "analysis": {"interval": "1s", "checks": [ERRORS] if name == MAIN else []},
        },
        autoscaling={"maxReplicas": MOST_REPLICAS},
    )


async def serve_another(scene: Scene) -> str:
    """Serve a version drawn, most times a good one."""
    version = scene.draw.choice((*GOOD, *GOOD, BAD, "broken"))
    await scene.bench.patch(MAIN, {"serve": version})
    return version


async def break_spec(scene: Scene) -> str:
    """An edit that makes no sense; the API server or the operator has to refuse it."""
    edits: tuple[dict[str, Any], ...] = (
        {"serve": "nowhere"},
        {"autoscaling": {"minReplicas": 9}},
        {"rollout": {"steps": [{"weight": 50}, {"weight": 25}]}},
        {"traffic": {"settle": "soon"}},
    )
    edit = scene.draw.choice(edits)
    with contextlib.suppress(ApiError):
        await scene.bench.patch(MAIN, edit)
        await asyncio.sleep(2.0)
    await scene.bench.apply(declared(scene, MAIN, scene.draw.choice(GOOD)))
    return next(iter(edit))


async def resize(scene: Scene) -> str:
    """Another least number of replicas."""
    replicas = scene.draw.choice((1, 2, 2, 3))
    await scene.bench.patch(MAIN, {"autoscaling": {"minReplicas": replicas}})
    return str(replicas)


async def retune(scene: Scene) -> str:
    """Another timeout, which changes the route only."""
    timeout = f"{scene.draw.randint(20, 40)}s"
    await scene.bench.patch(MAIN, {"traffic": {"resilience": {"timeout": timeout}}})
    return timeout


async def act(scene: Scene) -> str:
    """What a person may ask for; nobody promotes a version that answers with errors."""
    verb = scene.draw.choice(("Abort", "Promote", "Pause", "Resume", "Retry"))
    if verb == "Promote" and (await scene.bench.get(MODEL_DEPLOYMENTS, MAIN))["spec"].get("serve") == BAD:
        return "nothing"
    action = {"id": uuid.UUID(int=scene.draw.getrandbits(128)).hex, "verb": verb, "by": "soak"}
    path = MODEL_DEPLOYMENTS.path(scene.bench.namespace, MAIN, "status")
    await scene.bench.client.request("PATCH", path, {"status": {"action": action}}, content_type=MERGE_PATCH)
    if verb == "Pause":
        await asyncio.sleep(1.0)
        action = {**action, "id": f"{action['id']}-2", "verb": "Resume"}
        await scene.bench.client.request("PATCH", path, {"status": {"action": action}}, content_type=MERGE_PATCH)
    return verb


async def evict_pod(scene: Scene) -> str:
    """Delete a pod in order, where another of its revision is ready: no request may be lost by it."""
    crowds = [pods for pods in (await scene.ready_pods(MAIN)).values() if len(pods) > 1]
    if not crowds:
        return "none has two"
    with contextlib.suppress(ApiError):
        await scene.bench.client.delete(PODS, scene.draw.choice(scene.draw.choice(crowds)))
    return "one of several"


async def kill_pod(scene: Scene) -> str:
    """kill -9 of a pod: what it has in its hands is lost, and its share of requests until the mesh knows."""
    crowds = list((await scene.ready_pods(MAIN)).items())
    if not crowds:
        return "none is ready"
    revision, pods = scene.draw.choice(sorted(crowds))
    window = Window(time.time(), f"pod of {revision} killed")
    scene.windows.append(window)
    with contextlib.suppress(ApiError):
        await scene.bench.client.delete(PODS, scene.draw.choice(pods), grace=0)
    scene.later(_close(scene, window, revision, len(pods)))
    return f"one of {len(pods)}"


async def _close(scene: Scene, window: Window, revision: str, count: int) -> None:
    """End a window once the revision has as many ready pods as before, or has had a minute for it."""
    ready = 0
    while ready < count and time.time() < window.begin + LONGEST:
        await asyncio.sleep(0.5)
        with contextlib.suppress(ApiError):
            ready = len((await scene.ready_pods(MAIN)).get(revision, ()))
    window.end = time.time() + AFTERWARDS


async def kill_operator(scene: Scene) -> str:
    """kill -9 of one of the two."""
    name = scene.draw.choice(sorted(scene.pair.valves))
    scene.pair.signal(name, signal.SIGKILL)
    return name


async def end_operator(scene: Scene) -> str:
    """SIGTERM to one of the two."""
    name = scene.draw.choice(sorted(scene.pair.valves))
    scene.pair.signal(name, signal.SIGTERM)
    return name


async def cut_off(scene: Scene) -> str:
    """No way to the API server for one of the two."""
    name, seconds = scene.draw.choice(sorted(scene.pair.valves)), scene.draw.uniform(1.0, 8.0)
    await _shut(scene.pair.valves[name], seconds)
    return f"{name} for {seconds:.0f} s"


async def lose_metrics(scene: Scene) -> str:
    """Prometheus is away."""
    seconds = scene.draw.uniform(2.0, 8.0)
    await _shut(scene.prometheus, seconds)
    return f"{seconds:.0f} s"


async def _shut(valve: Valve, seconds: float) -> None:
    await valve.shut()
    try:
        await asyncio.sleep(seconds)
    finally:
        await valve.open()


async def delay_mesh(scene: Scene) -> str:
    """Envoy learns later, or sooner again."""
    seconds = scene.draw.uniform(0.05, LATEST_MESH)
    await scene.sandbox.set_propagation_delay(seconds)
    return f"{seconds:.1f} s"


async def visit(scene: Scene) -> str:
    """The second ModelDeployment comes, is edited, or goes; one that goes may be in the middle of anything."""
    found = [one["metadata"]["name"] for one in await scene.bench.items(MODEL_DEPLOYMENTS)]
    if VISITOR not in found:
        await scene.bench.apply(declared(scene, VISITOR, "v1"))
        return "comes"
    if scene.draw.random() < 0.5:
        await scene.bench.patch(VISITOR, {"serve": scene.draw.choice(GOOD[:2])})
        return "is edited"
    await scene.bench.delete(MODEL_DEPLOYMENTS, VISITOR)
    return "goes"


ACTS: tuple[tuple[int, Callable[[Scene], Awaitable[str]]], ...] = (
    (6, serve_another),
    (2, break_spec),
    (3, resize),
    (2, retune),
    (3, act),
    (2, evict_pod),
    (2, kill_pod),
    (2, kill_operator),
    (2, end_operator),
    (2, cut_off),
    (2, lose_metrics),
    (2, delay_mesh),
    (3, visit),
)
"""How often, relative to each other."""
