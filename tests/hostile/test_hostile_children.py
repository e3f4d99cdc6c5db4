"""Objects that the operator made, in the shapes that others give them: put right, and never a reason to fall over."""

import copy
from typing import Any

import pytest
from slipway.kube.kinds import CONTROLLER_REVISION, DEPLOYMENT

from tests.engine.world import KEY, World, versions

BROKEN: dict[str, Any] = {
    "empty": {},
    "null": None,
    "a list": [1],
    "a text": "x",
    "a version that is none": {"version": "x"},
    "a version without a uri": {"version": {"name": 5}, "runtime": []},
    "a runtime of another shape": {"version": {"name": "v1", "uri": "file:///m"}, "runtime": 5},
}


def only(world: World, plural: str) -> dict[str, Any]:
    (found,) = [obj for (kind, _, _), obj in world.api.objects.items() if kind == plural]
    return found


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
async def test_a_definition_that_cannot_be_read_is_made_anew_from_its_deployments_copy(data: Any) -> None:
    """The version has left the spec, so that nothing else describes it."""
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    kept, pods = copy.deepcopy(only(world, CONTROLLER_REVISION.plural)), only(world, DEPLOYMENT.plural)
    world.declare(versions("v2", suspend=True))
    world.api.drop(CONTROLLER_REVISION.plural, KEY.namespace, kept["metadata"]["name"])
    # Somebody else's object in its place, with our labels and our owner reference.
    metadata = {name: kept["metadata"][name] for name in ("namespace", "name", "labels", "ownerReferences")}
    world.api.put({**kept, "metadata": metadata, "data": data})
    await world.settle()
    world.declare(versions("v2", rollout={"steps": [{"weight": 10, "pause": {}}], "analysis": {"checks": []}}))
    await world.settle()
    assert world.status["rollout"]["reason"] == "AwaitingPromotion"
    name = kept["metadata"]["name"]
    assert world.api.get(CONTROLLER_REVISION.plural, KEY.namespace, name)["data"] == kept["data"]
    assert world.api.get(DEPLOYMENT.plural, KEY.namespace, name)["metadata"]["uid"] == pods["metadata"]["uid"]


@pytest.mark.parametrize("moment", ["0000-01-01T00:00:00Z", "1-01-01T00:00:00Z", "", None, "9999-12-31T23:59:59Z"])
async def test_moments_that_no_clock_shows_are_none_that_a_pod_knows(moment: str | None) -> None:
    """The API server takes any year from 0 on in the conditions of a pod, from whoever may write its status."""
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": moment} for kind in ("Ready", "PodScheduled")]
    pod = only(world, "pods")
    world.api.put({**pod, "status": {"podIP": "10.0.0.1", "conditions": conditions}})
    for _ in range(3):
        await world.reconcile()
    assert world.status["versions"][0]["readyReplicas"] == 1


@pytest.mark.parametrize("plural", ["virtualservices", "destinationrules", "services", CONTROLLER_REVISION.plural])
async def test_what_cannot_be_deleted_is_named_for_as_long_as_it_is_waited_for(plural: str) -> None:
    world = World()
    world.declare(versions("v1"))
    await world.settle()
    found = only(world, plural)
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/keep"]}
    world.api.put({**found, "metadata": found["metadata"] | leaving})
    await world.reconcile()
    (told,) = [entry for entry in world.status["conditions"] if entry["type"] == "TrafficApplied"]
    assert (told["status"], told["reason"]) == ("False", "WaitingForDeletion")
    assert f"{found['kind']} {found['metadata']['name']} is being deleted" in told["message"]
    assert "example.com/keep" in told["message"]
    world.api.drop(plural, KEY.namespace, found["metadata"]["name"])
    await world.settle()
    (told,) = [entry for entry in world.status["conditions"] if entry["type"] == "TrafficApplied"]
    assert (told["status"], told["reason"]) == ("True", "Applied")
    assert "deletionTimestamp" not in only(world, plural)["metadata"]
