"""Pods that were evicted or refused by their node stay as objects for as long as their Deployment does."""

from tests.engine.world import KEY, World, versions


def evict_one(world: World, revision: str) -> None:
    """Leave what is left of a pod in whose place its ReplicaSet has made another."""
    pod = world.api.get("pods", KEY.namespace, f"{revision}-0")
    metadata = {**pod["metadata"], "name": f"{revision}-evicted"}
    world.api.put({**pod, "metadata": metadata, "status": {"phase": "Failed", "reason": "Evicted"}})


async def test_a_version_that_is_no_longer_served_goes_although_its_evicted_pod_stays():
    world = World()
    plan = {"rollout": {"strategy": "BlueGreen", "keepPrevious": "10s"}, "autoscaling": {"mode": "None"}}
    world.declare(versions("v1", "v2", serve="v1", replicas=2, **plan))
    await world.settle()
    evict_one(world, world.status["versions"][0]["revision"])
    await world.settle()
    assert world.status["replicas"] == 2
    world.declare(versions("v1", "v2", serve="v2", replicas=2, **plan))
    await world.settle(rounds=200)
    assert [entry["name"] for entry in world.status["versions"]] == ["v2"]
