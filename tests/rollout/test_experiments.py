"""Experiments beside stable and beside a rollout."""

from typing import Any

import pytest
from slipway.api.status import Role

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, World, raw_spec, serving

V3 = {"version": "v3", "weight": 20}


def with_experiment(experiment: dict[str, Any] = V3, **rollout: Any) -> World:
    return serving(experiments=[experiment], **rollout)


def weights(world: World) -> tuple[int, int, int]:
    return world.weight("v1"), world.weight("v2"), world.weight("v3")


def test_an_experiment_starts_once_a_first_version_serves() -> None:
    world = World(raw_spec("v1", experiments=[V3]))
    world.run(8)
    assert {entry.name for entry in world.status.versions} == {"v1"}
    world.run(40)
    assert weights(world) == (80, 0, 20)
    assert world.entry("v3").role is Role.EXPERIMENT


def test_its_pods_and_its_subset_come_before_its_weight() -> None:
    world = serving()
    world.raw = world.raw | {"traffic": {"settle": "2s", "experiments": [V3]}}
    exposed = None
    while world.weight("v3") == 0:
        if world.revision("v3") in world.subsets and exposed is None:
            exposed = world.now
            assert world.entry("v3").ready_replicas > 0
        world.run(1)
    assert exposed is not None
    assert world.now - exposed >= 2


def test_an_experiment_that_fails_its_goldens_gets_nothing() -> None:
    world = serving()
    world.probes[world.revision("v3")] = False
    world.raw = world.raw | {"traffic": {"settle": "2s", "experiments": [V3]}}
    world.run(60)
    assert weights(world) == (100, 0, 0)
    assert world.entry("v3").reason == "VerificationFailed"


def test_stable_and_candidate_share_the_rest() -> None:
    world = with_experiment()
    world.run(30)
    world.serve("v2")
    world.judge(SAFE)
    seen: list[tuple[int, int, int]] = []
    for _ in range(100):
        world.run(1)
        if not seen or seen[-1] != weights(world):
            seen.append(weights(world))
    assert seen == [(80, 0, 20), (70, 10, 20), (30, 50, 20), (0, 80, 20)]
    assert world.entry("v2").role is Role.STABLE
    assert world.entry("v3").role is Role.EXPERIMENT


def test_a_rollback_leaves_the_experiment_alone() -> None:
    world = with_experiment()
    world.run(30)
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(40)
    assert weights(world) == (70, 10, 20)
    world.judge(HARMFUL)
    world.reconcile()
    assert weights(world) == (80, 0, 20)


def test_an_experiment_that_begins_during_a_rollout_takes_from_stable() -> None:
    world = serving()
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(40)
    world.raw = world.raw | {"traffic": {"settle": "2s", "experiments": [V3]}}
    world.run(40)
    assert weights(world) == (70, 10, 20)


def test_it_goes_in_the_reverse_order() -> None:
    world = with_experiment()
    world.run(30)
    world.raw = world.raw | {"traffic": {"settle": "2s"}}
    world.reconcile()
    assert weights(world) == (100, 0, 0)
    assert world.entry("v3").role is Role.RETIRING
    assert world.entry("v3").subset
    assert world.entry("v3").replicas > 0
    world.run(30)
    assert {entry.name for entry in world.status.versions} == {"v1"}


def test_one_that_loses_its_pods_gives_its_weight_back_and_gets_it_again() -> None:
    world = with_experiment({"version": "v3", "weight": 20, "match": [{"headers": {"x": {"exact": "y"}}}]})
    world.run(30)
    assert world.entry("v3").matched
    for pod in world.pods[world.revision("v3")]:
        pod.ready_at = world.now + 10
    world.reconcile()
    assert weights(world) == (100, 0, 0)
    assert not world.entry("v3").matched
    world.run(20)
    assert weights(world) == (80, 0, 20)


def test_a_match_without_weight_needs_pods_too() -> None:
    world = with_experiment({"version": "v3", "weight": 0, "match": [{"uri": {"prefix": "/beta"}}]})
    world.run(30)
    assert weights(world) == (100, 0, 0)
    assert world.entry("v3").matched
    assert world.entry("v3").ready_replicas == 1


def test_an_experiment_answers_when_nothing_else_does() -> None:
    world = with_experiment()
    world.run(30)
    for pod in world.pods[world.revision("v1")]:
        pod.crashes = True
    world.reconcile()
    assert weights(world) == (0, 0, 100)


def test_an_experiment_becomes_a_candidate_without_losing_its_weight() -> None:
    world = with_experiment()
    world.run(30)
    world.raw = world.raw | {"traffic": {"settle": "2s"}, "serve": "v3"}
    world.judge(SAFE)
    for _ in range(60):
        world.run(1)
        assert world.weight("v3") >= 10
    assert world.entry("v3").role is Role.STABLE


@pytest.mark.parametrize("strategy", ["BlueGreen", "Shadow", "Recreate"])
def test_experiments_stay_beside_every_strategy(strategy: str) -> None:
    world = with_experiment(strategy=strategy, shadow={"percent": 10})
    world.run(30)
    world.serve("v2")
    world.judge(SAFE)
    for _ in range(120):
        world.run(1)
        assert sum(weights(world)) == 100
    assert weights(world) == (0, 80, 20)
    assert world.entry("v2").role is Role.STABLE


def test_a_lost_status_keeps_the_experiments_weight() -> None:
    world = with_experiment()
    world.run(30)
    world.status = type(world.status)()
    for _ in range(40):
        world.run(1)
        assert weights(world) == (80, 0, 20)
    assert world.entry("v1").role is Role.STABLE
    assert world.entry("v3").role is Role.EXPERIMENT
