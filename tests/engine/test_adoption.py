"""What an earlier ModelDeployment of the same name has left is taken over as it serves."""

import copy

import pytest

from tests.engine.world import KEY, World, versions
from tests.kube.memory_api import status as refusal

OWNED = (
    "virtualservices",
    "destinationrules",
    "deployments",
    "services",
    "controllerrevisions",
    "poddisruptionbudgets",
)


def children(world: World) -> dict[tuple[str, str], dict]:
    return {(plural, name): obj for (plural, _, name), obj in world.api.objects.items() if plural in OWNED}


def orphan(world: World, kept=lambda references: []) -> None:
    """The ModelDeployment is deleted, and its children keep ``kept`` of their owner references."""
    world.api.drop("modeldeployments", *KEY)
    for obj in children(world).values():
        stray = copy.deepcopy(obj)
        stray["metadata"]["ownerReferences"] = kept(stray["metadata"]["ownerReferences"])
        world.api.put(stray)
    world.events.clear()
    world.start()


def essence(world: World) -> dict:
    """All that children are, but whose they are."""
    return {place: {key: obj[key] for key in ("spec", "data") if key in obj} for place, obj in children(world).items()}


def owners(world: World) -> set[str]:
    return {ref["uid"] for obj in children(world).values() for ref in obj["metadata"]["ownerReferences"]}


def uids(world: World) -> dict[tuple[str, str], str]:
    return {place: obj["metadata"]["uid"] for place, obj in children(world).items()}


def weights(world: World) -> dict[str, int]:
    (default,) = [rule for rule in world.api.get("virtualservices", *KEY)["spec"]["http"] if rule["name"] == "default"]
    return {item["destination"]["subset"].split("-")[1]: item["weight"] for item in default["route"]}


async def served(*names: str, **more) -> World:
    world = World()
    world.declare(versions(*names, **more))
    await world.settle()
    assert world.status["phase"] == "Ready"
    return world


@pytest.mark.parametrize("kept", [lambda references: [], lambda references: references], ids=["none", "of a dead uid"])
async def test_what_was_orphaned_is_adopted_as_it_is(kept):
    """With cascade=orphan and by Velero without references, by other tools with those of an owner that is no more."""
    spec = versions("v1", autoscaling={"minReplicas": 3, "maxReplicas": 5})
    world = World()
    world.declare(spec)
    await world.settle()
    before, known, dead = essence(world), uids(world), owners(world)
    orphan(world, kept)
    world.declare(spec)
    await world.reconcile()
    assert (world.status["phase"], world.status["stable"]) == ("Ready", "v1")
    await world.settle()
    assert (essence(world), uids(world)) == (before, known)
    new = world.api.get("modeldeployments", *KEY)["metadata"]["uid"]
    assert (owners(world), dead & {new}) == ({new}, set())
    assert [event.reason for event in world.events] == ["Adopted", "StatusRecovered"]
    assert world.events[0].message.count(",") + 1 == len(known)


async def test_replicas_that_the_load_asked_for_stay():
    """Whoever restores under load must not meet the least replicas there may be."""
    spec = versions("v1", autoscaling={"minReplicas": 1, "maxReplicas": 5})
    world = await served("v1", autoscaling=spec["autoscaling"])
    status = copy.deepcopy(world.api.get("modeldeployments", *KEY))
    status["status"]["versions"][0]["replicas"] = 4
    world.api.put(status)
    await world.reconcile()
    world.pods_follow()
    (before,) = [obj["spec"]["replicas"] for (plural, _), obj in children(world).items() if plural == "deployments"]
    orphan(world)
    world.declare(spec)
    await world.reconcile()
    (after,) = [obj["spec"]["replicas"] for (plural, _), obj in children(world).items() if plural == "deployments"]
    assert (before, after) == (4, 4)


async def test_a_rollout_goes_on_from_the_weights_that_were_left():
    spec = versions("v1", "v2", serve="v2", rollout={"steps": [{"weight": 20, "pause": {}}]})
    world = await served("v1", "v2", serve="v1", rollout=spec["rollout"])
    world.declare(spec)
    while weights(world).get("v2") != 20:
        await world.reconcile()
        world.pods_follow()
        world.now += 6
    known = uids(world)
    orphan(world)
    world.declare(spec)
    await world.reconcile()
    assert (world.status["stable"], world.status["candidate"], world.status["weight"]) == ("v1", "v2", 20)
    assert (uids(world), weights(world)) == (known, {"v1": 80, "v2": 20})


async def test_definitions_of_old_revisions_are_adopted_with_the_rest():
    world = await served("v1", "v2", serve="v1")
    world.declare(versions("v1", "v2", serve="v2"))
    await world.settle()
    definitions = {name for plural, name in children(world) if plural == "controllerrevisions"}
    assert len(definitions) == 2
    orphan(world)
    world.declare(versions("v2"))
    await world.settle()
    assert {name for plural, name in children(world) if plural == "controllerrevisions"} == definitions
    assert len(owners(world)) == 1


async def test_a_reference_that_somebody_took_away_comes_back():
    world = await served("v1")
    stray = copy.deepcopy(world.api.get("services", *KEY))
    del stray["metadata"]["ownerReferences"]
    world.api.put(stray)
    await world.settle()
    assert world.status["phase"] == "Ready"
    assert len(owners(world)) == 1


async def test_owners_that_are_no_controllers_stay():
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}
    world = await served("v1")
    orphan(world, lambda references: [other])
    world.declare(versions("v1"))
    await world.reconcile()
    bodies = [call.body for call in world.api.mutations() if call.content_type == "application/merge-patch+json"]
    adopting = [body["metadata"]["ownerReferences"] for body in bodies if "ownerReferences" in body["metadata"]]
    assert len(adopting) == len(children(world))
    assert all((others, ours["controller"]) == (other, True) for others, ours in adopting)


async def test_what_another_controls_is_a_conflict_though_it_bears_our_labels():
    other = {"apiVersion": "f/v1", "kind": "Canary", "name": "c", "uid": "uid-c", "controller": True}
    world = await served("v1")
    orphan(world, lambda references: [other])
    before = children(world)
    world.declare(versions("v1"))
    await world.reconcile()
    await world.reconcile()
    (ready,) = [item for item in world.status["conditions"] if item["type"] == "Ready"]
    assert (ready["reason"], "of Canary c" in ready["message"]) == ("Conflict", True)
    assert children(world) == before


async def test_a_copy_under_a_name_of_its_own_is_neither_adopted_nor_pruned():
    """Somebody has saved our Deployment and made another of it, labels and all."""
    world = await served("v1")
    (name,) = [name for plural, name in children(world) if plural == "deployments"]
    twin = copy.deepcopy(world.api.get("deployments", KEY.namespace, name))
    twin["metadata"] |= {"name": f"{name}-debug", "uid": "uid-twin", "ownerReferences": []}
    world.api.put(twin)
    await world.settle()
    assert world.api.get("deployments", KEY.namespace, f"{name}-debug")["metadata"]["ownerReferences"] == []


async def test_nothing_is_adopted_for_one_that_is_being_deleted_meanwhile():
    """Its children are being orphaned, of which a watch tells first: they must not get back the owner that leaves."""
    world = await served("v1")
    raw = copy.deepcopy(world.api.get("modeldeployments", *KEY))
    stray = copy.deepcopy(world.api.get("virtualservices", *KEY))
    stray["metadata"]["ownerReferences"] = []
    world.api.put(stray)
    await world.resync.once()
    leaving = copy.deepcopy(raw)
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]}
    world.api.put(leaving)
    assert (await world.reconciler.reconcile(KEY)).result == "conflict"
    assert (await world.reconciler.reconcile(KEY)).result == "gone"
    assert world.api.get("virtualservices", *KEY)["metadata"]["ownerReferences"] == []


async def test_an_object_that_changes_while_it_is_adopted_is_looked_at_again():
    world = await served("v1")
    orphan(world)
    world.declare(versions("v1"))
    late = [refusal(409, "Conflict", "the object has been modified")]
    world.api.faults.append(
        lambda call: late.pop() if late and call.method == "PATCH" and "/deployments/" in call.path else None
    )
    await world.reconcile()
    assert late == []
    assert len(owners(world)) == 1


async def test_what_may_not_be_adopted_is_told_and_left_untouched():
    world = await served("v1")
    orphan(world)
    world.declare(versions("v1"))
    world.api.faults.append(
        lambda call: refusal(403, "Forbidden", "no") if call.method == "PATCH" and "/services/" in call.path else None
    )
    await world.reconcile()
    await world.reconcile()
    (ready,) = [item for item in world.status["conditions"] if item["type"] == "Ready"]
    assert ready["reason"] == "Conflict"
    assert "Service sentiment exists and is labelled as one of ModelDeployment sentiment but not" in ready["message"]
    assert world.api.get("services", *KEY)["metadata"]["ownerReferences"] == []
