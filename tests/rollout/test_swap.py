"""Rollouts within a bound on GPUs: pods are swapped in place, and never more GPUs used than allowed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway.api.status import Outcome, Role
from slipway.rollout.surge import Surge

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, World, serving


def swapping(replicas: int, surge: int, gpus: tuple[int, int] = (1, 1), **rollout: Any) -> World:
    """Stable with so many replicas, each version with GPUs, pods that end slowly."""
    world = serving(replicas=replicas, maxSurgeGPUs=surge, **rollout)
    world.gpus = {"v1": gpus[0], "v2": gpus[1], "v3": 1}
    world.leave_seconds = 3
    return world


def course(world: World, seconds: int, budget: int) -> list[tuple[int, int, int]]:
    """Distinct (weight of v2, pods of v1, pods of v2) as time passes; the budget holds throughout."""
    seen: list[tuple[int, int, int]] = []
    for _ in range(seconds):
        world.run(1)
        assert world.gpus_in_use() <= budget
        pods = [len(world.pods.get(world.revision(name), [])) for name in ("v1", "v2")]
        now = (world.weight("v2"), pods[0], pods[1])
        if not seen or seen[-1] != now:
            seen.append(now)
    return seen


def test_without_spare_gpus_pods_are_swapped_one_by_one_and_weight_follows_in_shares_of_one() -> None:
    world = swapping(4, 0)
    world.serve("v2")
    world.judge(SAFE)
    seen = course(world, 300, budget=4)
    weights = [weight for weight, _, _ in seen]
    assert sorted(set(weights)) == [0, 25, 50, 75, 100]
    assert weights == sorted(weights)
    assert world.entry("v2").role is Role.STABLE
    assert all(stable >= 1 for weight, stable, _ in seen if weight < 100)
    assert "v1" not in {entry.name for entry in world.status.versions}


def test_the_steps_of_a_canary_hold_where_the_gpus_suffice() -> None:
    world = swapping(4, 2)
    world.serve("v2")
    world.judge(UNDECIDED)
    course(world, 60, budget=6)
    assert world.weight("v2") == 10
    assert len(world.pods[world.revision("v1")]) == 4


def test_a_swapped_candidate_that_does_harm_is_swapped_back() -> None:
    world = swapping(4, 0)
    world.serve("v2")
    world.judge(SAFE)
    while world.weight("v2") < 50:
        course(world, 1, budget=4)
    world.judge(HARMFUL)
    seen = course(world, 200, budget=4)
    weights = [weight for weight, _, _ in seen]
    assert weights == sorted(weights, reverse=True)
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK
    assert len(world.pods[world.revision("v1")]) == 4


def test_a_step_back_gives_gpus_back_as_well() -> None:
    world = swapping(4, 0, analysis={"onHarm": "StepDown"})
    world.serve("v2")
    world.judge(SAFE)
    while world.weight("v2") < 50:
        course(world, 1, budget=4)
    world.judge(HARMFUL)
    course(world, 100, budget=4)
    assert (world.weight("v2"), len(world.pods[world.revision("v1")])) == (25, 3)
    assert world.rollout.outcome is None


@pytest.mark.parametrize(
    ("replicas", "surge", "gpus", "strategy"),
    [(1, 0, (1, 1), "Canary"), (2, 0, (1, 2), "Canary"), (3, 2, (1, 1), "BlueGreen"), (1, 0, (1, 2), "Recreate")],
)
def test_a_bound_that_can_never_be_met_is_named_and_given_up_at_the_deadline(
    replicas: int, surge: int, gpus: tuple[int, int], strategy: str
) -> None:
    world = swapping(replicas, surge, gpus, strategy=strategy)
    world.serve("v2")
    world.judge(SAFE)
    course(world, 100, budget=replicas + surge)
    assert world.rollout.reason == "SurgeDeadlock"
    assert "maxSurgeGPUs" in world.rollout.message
    if strategy != "Recreate":
        assert len(world.pods[world.revision("v1")]) == replicas
    course(world, 100, budget=replicas + surge)
    assert world.status.history[-1].outcome is Outcome.FAILED
    assert world.weight("v1") == 100


def test_larger_pods_take_the_gpus_of_several() -> None:
    world = swapping(4, 0, (1, 2))
    world.serve("v2")
    world.judge(SAFE)
    seen = course(world, 300, budget=4)
    assert world.entry("v2").role is Role.STABLE
    assert (0, 2, 1) in seen


def test_a_broken_stable_gives_its_only_gpu_to_a_candidate_that_may_mend_it() -> None:
    world = swapping(1, 0)
    for pod in world.pods[world.revision("v1")]:
        pod.crashes = True
    world.serve("v2")
    world.judge(SAFE)
    course(world, 100, budget=1)
    assert world.weight("v2") == 100


def test_a_pause_stops_the_swap() -> None:
    world = swapping(4, 0)
    world.serve("v2")
    world.judge(SAFE)
    while world.weight("v2") < 25:
        course(world, 1, budget=4)
    world.act("Pause", "a1")
    seen = course(world, 60, budget=4)
    assert len(seen) == 1


def test_pods_without_gpus_know_no_bound() -> None:
    world = serving(replicas=2, maxSurgeGPUs=0)
    world.serve("v2")
    world.judge(SAFE)
    world.run(100)
    assert world.entry("v2").role is Role.STABLE


@given(
    whole=st.integers(1, 8),
    stable=st.integers(0, 4),
    candidate=st.integers(1, 4),
    allowed=st.integers(0, 8),
    goal=st.integers(1, 100),
    needed=st.integers(1, 8),
)
def test_every_plan_keeps_within_the_bound(
    whole: int, stable: int, candidate: int, allowed: int, goal: int, needed: int
) -> None:
    surge = Surge(whole, stable, candidate, allowed)
    if surge.most(1) == 0:
        return
    candidates, stables = surge.plan(goal, needed, 1)
    assert candidates >= 1
    assert 1 <= stables <= whole
    assert candidates * candidate <= allowed + (whole - stables) * stable
    assert candidates <= surge.candidates_beside(stables)
