"""How often a status is written, and what waits for a moment so that it is written less often."""

from typing import Any

import pytest
from slipway.engine.holding import HOLD, only_tells
from slipway.engine.persistence import merge_patch
from slipway.engine.reconcile import Outcome
from slipway.kube.cache import trimmed
from slipway.kube.kinds import WATCHED

from tests.engine.world import KEY, World, versions

QUICK = {"traffic": {"settle": "1s"}}


def status_writes(world: World) -> int:
    return sum(call.path.endswith("/status") for call in world.api.mutations())


async def look(world: World, after: float) -> Outcome:
    world.now += after
    return await world.reconcile()


async def started(**spec: object) -> World:
    """A first version whose pod has become ready and is being checked."""
    world = World()
    world.prober.passed = None
    world.declare(versions("v1", **QUICK, **spec))
    await world.reconcile()
    world.pods_follow()
    return world


async def test_a_first_deployment_takes_five_writes_of_its_status():
    """Begun, exposed, its subset seen, weighted, promoted."""
    world = await started()
    await look(world, 0.1)
    world.prober.passed = True
    await look(world, 0.1)
    for _ in range(20):
        await look(world, 0.3)
    assert world.status["phase"] == "Ready"
    assert status_writes(world) == 5


async def test_what_only_tells_of_the_same_wait_is_written_a_moment_later():
    world = await started()
    outcome = await look(world, 0.1)
    assert (outcome.result, outcome.requeue_after) == ("ok", HOLD)
    assert (status_writes(world), world.status["versions"][0]["readyReplicas"]) == (1, 0)
    await look(world, HOLD / 2)
    assert status_writes(world) == 1
    await look(world, HOLD / 2)
    assert (status_writes(world), world.status["rollout"]["reason"]) == (2, "Verifying")


async def test_nothing_is_done_while_status_is_held_back():
    world = await started()
    service = world.api.get("services", *KEY)
    world.api.put({**service, "spec": {**service["spec"], "selector": {"app": "another"}}})
    await look(world, 0.1)
    assert world.api.get("services", *KEY)["spec"]["selector"] == {"app": "another"}
    await look(world, HOLD)
    repaired = [call.path.split("/")[-2:] for call in world.api.mutations()[-2:]]
    assert repaired == [["sentiment", "status"], ["services", "sentiment"]]


async def test_a_new_process_holds_nothing_back_for_longer():
    world = await started()
    await look(world, 0.1)
    world.start()
    world.prober.passed = None
    await look(world, 0.1)
    await look(world, HOLD)
    assert world.status["rollout"]["reason"] == "Verifying"


async def test_nothing_changes_an_object_of_the_cache():
    """Its parts may be parts of others as well."""
    world = World()
    for name in ("v1", "v2"):
        world.declare(versions("v1", "v2", serve=name))
        await world.settle(rounds=200)
    await world.resync.once()
    seen = 0
    for kind in WATCHED:
        for key in world.cache.keys(kind):
            stored = world.api.get(kind.plural, *key)
            assert world.cache.get(kind, key) == trimmed(kind, stored), (kind.name, key)
            seen += 1
    assert seen >= 8


VERSION: dict[str, Any] = {
    "name": "v1",
    "revision": "m-v1-0",
    "subset": False,
    "readyReplicas": 0,
    "weight": {"intended": 0},
}
WAITING = {"stage": "Starting", "reason": "WaitingForPods", "message": "0 of 1"}
BEFORE: dict[str, Any] = {
    "phase": "Pending",
    "replicas": 1,
    "versions": [VERSION],
    "rollout": WAITING,
    "conditions": [{"type": "Ready", "status": "False", "reason": "WaitingForPods"}],
}


@pytest.mark.parametrize(
    ("change", "tells"),
    [
        ({"replicas": 2}, True),
        ({"versions": [VERSION | {"readyReplicas": 1, "reason": "Verifying", "coldStart": {"p50": "1s"}}]}, True),
        ({"rollout": WAITING | {"reason": "Verifying", "message": "1 of 1"}}, True),
        ({"conditions": [{"type": "Ready", "status": "False", "reason": "Verifying"}]}, True),
        ({"conditions": [{"type": "Ready", "status": "True", "reason": "WaitingForPods"}]}, False),
        ({"conditions": []}, False),
        ({"phase": "Stalled"}, False),
        ({"rollout": WAITING | {"stage": "Exposing"}}, False),
        ({"rollout": None}, False),
        ({"versions": [VERSION | {"weight": {"intended": 5}}]}, False),
        ({"versions": [VERSION, VERSION | {"name": "v2"}]}, False),
        ({"versions": []}, False),
    ],
)
def test_what_only_tells(change, tells):
    after = BEFORE | change
    assert only_tells(BEFORE, merge_patch(BEFORE, after), after) is tells


@pytest.mark.parametrize(("ready", "tells"), [((1, 2), True), ((1, 0), False), ((0, 1), False)])
def test_the_last_pod_and_the_first_of_what_the_router_may_lead_to_count(ready, tells):
    before, after = ({"versions": [VERSION | {"subset": True, "readyReplicas": count}]} for count in ready)
    assert only_tells(before, merge_patch(before, after), after) is tells
