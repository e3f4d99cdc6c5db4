"""Pods are marked right before replicas are lowered, and at no other time."""

from typing import Any

import pytest
from slipway.api.samples import MetricsView, RevisionMetrics
from slipway.engine.victims import DELETION_COST

from tests.engine.world import KEY, World, versions
from tests.kube.memory_api import status

MODE = {"autoscaling": {"mode": "None"}}


async def three_pods(**loads: float) -> World:
    """A model at rest with three pods; ``loads`` are requests by the last part of their names, as ``_0``."""
    world = World()
    world.declare(versions("v1", replicas=3, **MODE))
    await world.settle()
    revision = world.status["versions"][0]["revision"]
    by_pod = {f"{revision}-{number.strip('_')}": load for number, load in loads.items()}
    world.metrics = lambda: MetricsView(
        world.now, True, "", revisions={revision: RevisionMetrics(revision, pod_loads=by_pod)}
    )
    world.api.calls.clear()
    return world


def costs(world: World) -> dict[str, Any]:
    pods = [obj for (plural, _, _), obj in sorted(world.api.objects.items()) if plural == "pods"]
    return {pod["metadata"]["name"][-1]: (pod["metadata"].get("annotations") or {}).get(DELETION_COST) for pod in pods}


def written(world: World) -> list[str]:
    return [call.path.split("/")[-2] for call in world.api.mutations() if not call.path.endswith("/status")]


def replicas(world: World) -> int:
    revision = world.status["versions"][0]["revision"]
    return int(world.api.get("deployments", KEY.namespace, revision)["spec"]["replicas"])


async def test_costs_are_written_before_the_replicas_are_lowered():
    world = await three_pods(_0=4.0, _1=1.0)
    world.declare(versions("v1", replicas=2, **MODE))
    await world.reconcile()
    assert costs(world) == {"0": "3", "1": None, "2": "4"}
    assert written(world)[:3] == ["pods", "pods", "deployments"]
    assert replicas(world) == 2
    (mark, *_) = [call for call in world.api.mutations() if "/pods/" in call.path]
    assert (mark.method, mark.content_type) == ("PATCH", "application/merge-patch+json")
    assert ("fieldManager", "slipway") in mark.query
    assert mark.body == {"metadata": {"annotations": {DELETION_COST: "3"}}}


async def test_without_a_scale_down_nothing_is_marked():
    world = await three_pods(_0=4.0, _1=1.0, _2=0.0)
    before = world.api.writes
    await world.reconcile()
    assert world.api.writes == before
    world.declare(versions("v1", replicas=4, **MODE))
    await world.reconcile()
    assert replicas(world) == 4
    assert "pods" not in written(world)


async def test_where_all_go_nothing_is_marked():
    world = await three_pods(_0=4.0, _1=1.0, _2=0.0)
    world.declare(versions("v1", replicas=0, **MODE))
    for _ in range(3):
        await world.reconcile()
    assert "pods" not in written(world)


async def test_marks_of_an_earlier_time_are_taken_back_where_nothing_is_known():
    world = await three_pods(_0=4.0, _1=1.0)
    world.declare(versions("v1", replicas=2, **MODE))
    await world.reconcile()
    world.metrics = None
    world.declare(versions("v1", replicas=1, **MODE))
    await world.reconcile()
    assert set(costs(world).values()) == {None}
    assert replicas(world) == 1


@pytest.mark.parametrize(("code", "marks"), [(403, 1), (404, 2), (503, 1)])
async def test_a_refusal_stops_no_scale_down(code, marks):
    world = await three_pods(_0=4.0, _1=1.0)
    refusal = status(code, "Refused", "pods may not be patched")
    world.api.faults.append(lambda call: refusal if call.method == "PATCH" and "/pods/" in call.path else None)
    world.declare(versions("v1", replicas=2, **MODE))
    await world.reconcile()
    assert written(world).count("pods") == marks
    assert replicas(world) == 2


async def test_a_repair_that_was_given_up_marks_no_pods():
    """Replicas that a rival keeps raising stay as they are, and so do the pods."""
    world = await three_pods(_0=4.0, _1=1.0)
    revision = world.status["versions"][0]["revision"]
    for number in range(9):
        found = world.api.get("deployments", KEY.namespace, revision)
        raised = {**found, "spec": {**found["spec"], "replicas": 5}}
        raised["metadata"] = {**found["metadata"], "managedFields": [{"manager": "rival", "time": f"2026-{number}"}]}
        world.api.put(raised)
        await world.reconcile()
        world.now += 1
    assert replicas(world) == 5
    world.metrics = lambda: MetricsView(
        world.now, True, "", revisions={revision: RevisionMetrics(revision, pod_loads={f"{revision}-1": 9.0})}
    )
    before = world.api.writes
    await world.reconcile()
    assert world.api.writes == before


async def test_pods_that_are_over_for_good_are_not_chosen_among():
    world = await three_pods(_0=4.0, _1=1.0)
    revision = world.status["versions"][0]["revision"]
    evicted = world.api.get("pods", KEY.namespace, f"{revision}-2")
    world.api.put({**evicted, "status": {"phase": "Failed", "reason": "Evicted"}})
    world.declare(versions("v1", replicas=1, **MODE))
    await world.reconcile()
    assert costs(world) == {"0": "3", "1": None, "2": None}
