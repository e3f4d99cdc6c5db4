import asyncio
import dataclasses
import itertools
from typing import Any

import pytest
from slipway.api.status import ModelDeploymentStatus
from slipway.engine.engine import Engine, Settings
from slipway.engine.queue import Backoff, WorkQueue
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT, VIRTUAL_SERVICE
from slipway.kube.metadata import Key

from tests.engine.test_reconcile import decision
from tests.kube.memory_api import MemoryApi, status

SETTINGS = Settings(http_host="127.0.0.1", http_port=0, tick=3600.0)
KEY = Key("ns", "m")
OWNED = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model-deployment": "m"}


def mdep(version: int = 1, name: str = "m", **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    head = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment"}
    return {**head, "metadata": metadata, "spec": {}, "status": status}


def child(kind: str, api_version: str, name: str, version: int, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": name, "uid": f"u-{name}", "resourceVersion": str(version), "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


class Stage:
    def __init__(self, decide: Any = None, clock: Any = None, **changes: Any) -> None:
        self.api = MemoryApi()
        self.engine = Engine(
            dataclasses.replace(SETTINGS, **changes),
            Client(self.api, retry=RetryPolicy(attempts=1)),
            decide=decide or (lambda *inputs: decision()),
            clock=clock or (lambda: asyncio.get_running_loop().time()),
        )

    async def taken(self) -> list[Key]:
        keys = []
        while len(self.engine.queue):
            taken = await self.engine.queue.take()
            assert taken is not None
            keys.append(taken[0])
            self.engine.queue.done(taken[0])
        return keys


async def test_events_queue_whom_they_concern_and_news_only():
    stage = Stage()
    stage.engine.event(MODEL_DEPLOYMENT, "ADDED", mdep(1))
    assert await stage.taken() == [KEY]
    stage.engine.event(MODEL_DEPLOYMENT, "MODIFIED", mdep(1))
    stage.engine.event(DEPLOYMENT, None, child("Deployment", "apps/v1", "x", 5, {}))
    assert await stage.taken() == []
    deployment = child("Deployment", "apps/v1", "d", 7, OWNED)
    stage.engine.event(DEPLOYMENT, None, deployment)
    assert await stage.taken() == [KEY]
    stage.engine.event(DEPLOYMENT, "DELETED", deployment)
    assert await stage.taken() == [KEY]


async def test_a_foreign_route_wakes_those_who_share_its_host():
    stage = Stage()
    api = "networking.istio.io/v1"
    stage.engine.event(VIRTUAL_SERVICE, None, child("VirtualService", api, "m", 1, OWNED, hosts=["a.example"]))
    await stage.taken()
    stage.engine.event(VIRTUAL_SERVICE, "ADDED", child("VirtualService", api, "x", 2, {}, hosts=["b.example"]))
    assert await stage.taken() == []
    stage.engine.event(VIRTUAL_SERVICE, "ADDED", child("VirtualService", api, "y", 3, {}, hosts=["a.example"]))
    assert await stage.taken() == [KEY]


async def test_what_moves_is_looked_at_with_every_snapshot_and_what_rests_now_and_then():
    clock = [100.0]
    stage = Stage(clock=lambda: clock[0])
    stage.engine.event(MODEL_DEPLOYMENT, None, mdep(1, "moving", phase="Progressing"))
    stage.engine.event(MODEL_DEPLOYMENT, None, mdep(2, "resting", phase="Ready"))
    stage.engine.event(MODEL_DEPLOYMENT, None, mdep(3, "new"))
    await stage.taken()
    looks: dict[str, list[float]] = {}
    for _ in range(25):
        stage.engine.queue_active()
        for key in await stage.taken():
            looks.setdefault(key.name, []).append(clock[0])
        clock[0] += 5.0
    assert looks["moving"] == looks["new"] == [100.0 + 5.0 * number for number in range(25)]
    resting = looks["resting"]
    assert resting[0] == 100.0
    assert 8 <= len(resting) <= 10
    assert all(later - before <= 15.0 for before, later in itertools.pairwise(resting))


async def test_what_gets_no_requests_yet_rests_for_metrics():
    clock = [100.0]
    stage = Stage(clock=lambda: clock[0])
    waiting = {"name": "v2", "weight": {"intended": 0, "applied": 0}}
    serving = {"name": "v1", "weight": {"intended": 0, "applied": 100}}
    stage.engine.event(MODEL_DEPLOYMENT, None, mdep(1, "first", phase="Progressing", versions=[waiting]))
    stage.engine.event(MODEL_DEPLOYMENT, None, mdep(2, "next", phase="Progressing", versions=[serving, waiting]))
    await stage.taken()
    looks = []
    for _ in range(12):
        stage.engine.queue_active()
        looks += [key.name for key in await stage.taken()]
        clock[0] += 5.0
    assert looks.count("next") == 12
    assert 3 <= looks.count("first") <= 6


async def test_an_edit_does_not_wait_for_looks_at_what_rests():
    stage = Stage()
    for number in range(5):
        stage.engine.event(MODEL_DEPLOYMENT, None, mdep(number + 1, f"m-{number}", phase="Ready"))
    await stage.taken()
    stage.engine.queue_active()
    stage.engine.event(MODEL_DEPLOYMENT, "MODIFIED", mdep(9, "m-4", phase="Ready"))
    keys = await stage.taken()
    assert [key.name for key in keys] == ["m-4", "m-0", "m-1", "m-2", "m-3"]


async def test_those_that_rest_are_not_all_looked_at_at_once():
    clock = [100.0]
    stage = Stage(clock=lambda: clock[0])
    for number in range(300):
        stage.engine.event(MODEL_DEPLOYMENT, None, mdep(number + 1, f"m-{number}", phase="Ready"))
    stage.engine.queue_active()
    assert len(await stage.taken()) == 300
    counts = []
    for _ in range(6):
        clock[0] += 5.0
        stage.engine.queue_active()
        counts.append(len(await stage.taken()))
    assert sum(counts) == 600
    assert all(60 < count < 140 for count in counts)


async def finished(stage: Stage, until: Any) -> None:
    stop = asyncio.Event()
    task = asyncio.ensure_future(stage.engine.run(stop))
    async with asyncio.timeout(60):
        while not until() and not task.done():  # noqa: ASYNC110 - only asking tells
            await asyncio.sleep(0.01)
        stop.set()
        await task


async def test_keys_are_worked_on_and_the_end_waits_for_the_running_one():
    stage = Stage()
    began, ended = asyncio.Event(), []
    patch = stage.api.send

    async def slow(call: Any) -> Any:
        if call.method == "PATCH":
            began.set()
            await asyncio.sleep(0.2)
            ended.append(call.path)
        return await patch(call)

    stage.api.send = slow  # type: ignore[method-assign]
    stage.api.put(mdep())
    await finished(stage, began.is_set)
    assert len(ended) == 1
    assert stage.api.get("modeldeployments", "ns", "m")["status"]["phase"] == "Pending"
    text = stage.engine.telemetry.exposition().decode()
    assert 'slipway_operator_reconciles_total{result="ok"} 1.0' in text


async def test_a_defect_met_by_one_object_does_not_stop_the_others():
    seen: list[str] = []

    def decide(raw: Any, *inputs: Any) -> Any:
        seen.append(raw["metadata"]["name"])
        if raw["metadata"]["name"] == "bad":
            raise RuntimeError("defect")
        return decision()

    stage = Stage(decide)
    stage.api.put(mdep(name="bad"))
    stage.api.put(mdep(name="good"))
    await finished(stage, lambda: seen.count("bad") == 2 and "good" in seen)
    assert stage.api.get("modeldeployments", "ns", "good")["status"]["phase"] == "Pending"
    assert 'result="error"} 2.0' in stage.engine.telemetry.exposition().decode()


async def test_an_object_is_told_once_that_its_reconciles_keep_failing():
    """Its status may say what held long ago."""
    count: list[int] = []

    def decide(*inputs: Any) -> Any:
        count.append(1)
        raise RuntimeError("defect")

    stage = Stage(decide)
    stage.engine.queue = WorkQueue(backoff=Backoff(first=0.001, longest=0.002))
    stage.api.put(mdep())
    await finished(stage, lambda: len(count) >= 5)
    posted = [call.body for call in stage.api.mutations() if call.path.endswith("/events")]
    assert [(event["reason"], event["type"]) for event in posted] == [("ReconcileFailed", "Warning")]
    assert "RuntimeError: defect" in posted[0]["message"]


async def test_a_conflict_starts_again_soon():
    rejections = [status(409, "Conflict", "changed")]
    stage = Stage()
    stage.api.put(mdep())
    stage.api.faults.append(lambda call: rejections.pop() if call.method == "PATCH" and rejections else None)
    await finished(stage, lambda: "phase" in stage.api.get("modeldeployments", "ns", "m").get("status", {}))
    assert 'result="conflict"} 1.0' in stage.engine.telemetry.exposition().decode()


async def test_a_failing_api_server_is_waited_for():
    failures = [status(503, "ServiceUnavailable", "down") for _ in range(2)]
    stage = Stage()
    stage.api.put(mdep())
    stage.api.faults.append(lambda call: failures.pop() if call.method == "PATCH" and failures else None)
    await finished(stage, lambda: "phase" in stage.api.get("modeldeployments", "ns", "m").get("status", {}))
    assert failures == []


async def test_a_requeue_comes_back():
    count = []

    def decide(*inputs: Any) -> Any:
        count.append(1)
        return decision(requeue_after=0.01 if len(count) < 3 else None, status=ModelDeploymentStatus())

    stage = Stage(decide)
    stage.api.put(mdep())
    await finished(stage, lambda: len(count) == 3)


async def test_a_reconcile_that_does_not_end_is_cut_off():
    stage = Stage(drain=0.1)
    began = asyncio.Event()
    send = stage.api.send

    async def hang(call: Any) -> Any:
        if call.method == "PATCH":
            began.set()
            await asyncio.Event().wait()
        return await send(call)

    stage.api.send = hang  # type: ignore[method-assign]
    stage.api.put(mdep())
    await finished(stage, began.is_set)


async def test_an_engine_that_cannot_serve_does_not_start():
    with pytest.raises(OverflowError):
        await Stage(http_port=-1).engine.run(asyncio.Event())
