"""The split of traffic by numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway.rollout.capacity import Capacity
from slipway.rollout.weights import Share, going_back, moving_up, standing

STABLE = Share("s", ready=4, exposed=True, weight=90)


def candidate(ready: int = 1, weight: int = 10, exposed: bool = True) -> Share:
    return Share("c", ready=ready, exposed=exposed, weight=weight)


def capacity(demand: float = 100.0, per_replica: float = 40.0, maximum: int = 8) -> Capacity:
    return Capacity(demand, per_replica, reference=4, maximum=maximum)


@pytest.mark.parametrize(
    ("ready", "goal", "present", "weight"),
    [
        (1, 25, 5, 25),  # one replica carries 50
        (1, 50, 25, 50),
        (1, 75, 25, 45),  # short of the goal: nine tenths of 50
        (1, 75, 47, 47),  # and no move for two points
        (1, 75, 60, 45),  # but never above what is carried
        (3, 100, 50, 100),
        (0, 25, 5, 0),
    ],
)
def test_a_rising_weight_is_what_ready_replicas_carry(ready: int, goal: int, present: int, weight: int) -> None:
    assert moving_up(STABLE, candidate(ready, present), goal, capacity())["c"] == weight


def test_small_changes_of_demand_do_not_move_a_weight_that_waits_for_capacity() -> None:
    weight = moving_up(STABLE, candidate(1, 25), 90, capacity(100))["c"]
    for demand in (98.0, 104.0, 101.0, 107.0, 96.0):
        assert moving_up(STABLE, candidate(1, weight), 90, capacity(demand))["c"] == weight


def test_a_candidate_at_the_maximum_carries_whatever_it_gets() -> None:
    assert moving_up(STABLE, candidate(2, 50), 100, capacity(1000, maximum=2))["c"] == 100


def test_going_back_gives_stable_at_once_all_that_it_carries() -> None:
    assert going_back(STABLE, candidate(4, 60), capacity())["c"] == 0
    weak = Share("s", ready=1, exposed=True, weight=40)
    assert going_back(weak, candidate(4, 60), capacity())["c"] == 50


def test_all_traffic_goes_to_a_warm_previous_version_while_stable_has_no_pod() -> None:
    dead = Share("s", ready=0, exposed=True, weight=100)
    assert standing(dead, [Share("p", ready=2, exposed=True, weight=0)]) == {"s": 0, "p": 100}
    assert standing(dead, [Share("p", ready=2, exposed=False, weight=0)]) == {"s": 100, "p": 0}


@given(
    ready=st.integers(0, 10),
    stable_ready=st.integers(0, 10),
    goal=st.integers(1, 100),
    present=st.integers(0, 100),
    demand=st.one_of(st.none(), st.floats(0, 1e6)),
    per_replica=st.one_of(st.none(), st.floats(0.1, 1e4)),
)
def test_any_split_is_whole_numbers_that_sum_to_100_within_capacity(
    ready: int, stable_ready: int, goal: int, present: int, demand: float | None, per_replica: float | None
) -> None:
    size = Capacity(demand, per_replica, reference=4, maximum=8)
    stable = Share("s", stable_ready, exposed=True, weight=100 - present)
    new = candidate(ready, present)
    up, back = moving_up(stable, new, goal, size), going_back(stable, new, size)
    for split in (up, back):
        assert sum(split.values()) == 100
        assert all(isinstance(weight, int) and weight >= 0 for weight in split.values())
    assert back["c"] <= present
    if stable_ready:
        assert up["c"] <= min(goal, size.carried(ready))


@given(weight=st.integers(1, 100), demand=st.floats(0.1, 1e5), per_replica=st.floats(0.1, 1e3))
def test_the_replicas_asked_for_a_weight_carry_it(weight: int, demand: float, per_replica: float) -> None:
    size = Capacity(demand, per_replica, reference=3, maximum=10)
    assert size.carried(size.replicas_for(weight)) >= weight


def test_next_to_no_demand_is_carried_by_any_pod():
    assert Capacity(demand=1.5e-305, per_replica=8.0, reference=4, maximum=8).carried(3) == 100
