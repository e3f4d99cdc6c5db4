"""A status that somebody cleared, as a whole or in part: backup tools do it, and people with kubectl."""

import pytest
from slipway.api.status import Phase, Role, Stage

from tests.decide.world import World, serving

PARTS = (("versions",), ("rollout",), ("versions", "rollout"), ("versions", "rollout", "history", "analysis", "phase"))


def clear(world: World, parts: tuple[str, ...]) -> None:
    empty = type(world.status)()
    world.status = world.status.model_copy(update={part: getattr(empty, part) for part in parts})


def rolling() -> World:
    """v2 has its first weight beside v1."""
    world = serving()
    world.serve("v2")
    while world.weights.get(world.revision("v2")) != 10:
        world.tick()
    world.run(4)
    return world


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_what_serves_goes_on_serving_when_a_status_at_rest_is_cleared(parts: tuple[str, ...]) -> None:
    world = serving()
    before = [pod.name for pod in world.pods[world.revision("v1")]]
    clear(world, parts)
    world.run(5)
    assert [pod.name for pod in world.pods[world.revision("v1")]] == before
    assert world.weights == {world.revision("v1"): 100}
    assert (world.status.phase, world.status.stable) == (Phase.READY, "v1")
    assert world.last is not None
    assert world.last.requeue_after is None


@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_a_rollout_goes_on_when_a_part_of_its_status_is_cleared(parts: tuple[str, ...]) -> None:
    world = rolling()
    before = {revision: [pod.name for pod in pods] for revision, pods in world.pods.items()}
    clear(world, parts)
    world.reconcile()
    assert {revision: [pod.name for pod in pods] for revision, pods in world.pods.items()} == before
    assert (world.weight("v1"), world.weight("v2")) == (90, 10)
    for _ in range(900):
        world.tick()
        assert sum(world.weights.values()) == 100
        if world.status.stable == "v2":
            break
    assert world.status.stable == "v2"


def test_an_abort_is_not_forgotten_with_the_versions() -> None:
    world = rolling()
    world.frozen = True
    world.act("Abort")
    world.tick()
    clear(world, ("versions",))
    world.tick()
    assert world.status.rollout is not None
    assert world.status.rollout.stage is Stage.RETURNING
    assert world.weight("v2") == 0
    world.frozen = False
    world.run(10)
    assert (world.status.stable, world.weights) == ("v1", {world.revision("v1"): 100})


def test_one_entry_that_is_lost_comes_back_in_its_role() -> None:
    world = rolling()
    stable = world.revision("v1")
    rest = tuple(entry for entry in world.status.versions if entry.revision != stable)
    world.status = world.status.model_copy(update={"versions": rest})
    world.reconcile()
    entry = world.status.revision(stable)
    assert entry is not None
    assert (entry.role, entry.weight.intended) == (Role.STABLE, 90)


def test_where_nothing_serves_a_rollout_that_had_failed_is_begun_again() -> None:
    world = rolling()
    world.act("Abort")
    world.run(60)
    clear(world, ("versions",))
    world.pods.clear()
    world.weights.clear()
    world.subsets.clear()
    world.run(60)
    assert (world.status.phase, world.status.stable) == (Phase.READY, "v2")


def restored(world: World) -> None:
    """As a backup tool leaves it half-way: Deployments, a ModelDeployment without status, and no routes yet."""
    clear(world, ("versions", "rollout", "history", "analysis", "phase"))
    world.weights.clear()
    world.subsets.clear()


def test_stable_is_known_without_routes_and_the_candidate_starts_anew() -> None:
    world = rolling()
    stable = [pod.name for pod in world.pods[world.revision("v1")]]
    restored(world)
    world.reconcile()
    assert world.weights == {world.revision("v1"): 100}
    assert [pod.name for pod in world.pods[world.revision("v1")]] == stable
    assert world.status.rollout is not None
    assert (world.status.stable, world.status.candidate, world.weight("v2")) == ("v1", "v2", 0)
    world.run(600)
    assert world.status.stable == "v2"


def test_an_experiment_is_not_taken_for_stable() -> None:
    experiment = {"version": "v3", "weight": 0, "match": [{"headers": {"x-beta": {"exact": "on"}}}]}
    world = serving(traffic={"settle": "2s", "experiments": [experiment]})
    world.run(30)
    assert world.pods[world.revision("v3")]
    restored(world)
    world.reconcile()
    assert world.status.stable != "v3"
    world.run(60)
    assert (world.status.stable, world.weights[world.revision("v1")]) == ("v1", 100)


def test_one_alone_starts_as_a_first_version_does_with_the_pods_that_it_has() -> None:
    world = serving()
    pods = [pod.name for pod in world.pods[world.revision("v1")]]
    assert len(pods) > 1
    restored(world)
    world.reconcile()
    assert [pod.name for pod in world.pods[world.revision("v1")]] == pods
    world.run(30)
    assert (world.status.phase, world.status.stable, world.weights) == (Phase.READY, "v1", {world.revision("v1"): 100})
