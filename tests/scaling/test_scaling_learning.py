"""Capacity learned from saturated intervals, where no target is set."""

import dataclasses
from typing import Any

import pytest
from slipway.api.scalars import DecimalString
from slipway.api.status import LearnedCapacity, VersionStatus
from slipway.api.timestamps import format_time
from slipway.scaling import ScalingRequest, ScalingResult, decide, known_target

from tests.scaling.scenes import NOW, autoscaling, entry, metrics, pod, request, round_trip, sample, starting, view

UNSET = autoscaling(qps={}, maxReplicas=20, gpuUtilization={"target": 0})


def seen(served: float, *, wait: float = 0.5, depth: float = 40.0, **fields: Any) -> ScalingRequest:
    """Four replicas that answer ``served`` a second while requests wait."""
    known = dataclasses.replace(metrics(queue=wait, depth=depth), served=sample(served))
    values: dict[str, Any] = {"settings": UNSET, "metrics": known} | fields
    return request(4, 500.0, **values)


def after(intervals: int, served: float = 400.0, **fields: Any) -> ScalingResult:
    result = decide(seen(served, **fields))
    for number in range(1, intervals):
        again = dataclasses.replace(seen(served, **fields), entry=round_trip(result.entry), now=NOW + 60.0 * number)
        result = decide(dataclasses.replace(again, entry=again.entry.model_copy(update={"replicas": 4})))
    return result


def learned(qps: float, intervals: int = 3) -> VersionStatus:
    capacity = LearnedCapacity(qps_per_replica=DecimalString.of(qps, 4), intervals=intervals, at=format_time(NOW - 500))
    return entry(4, capacity=capacity)


def test_three_saturated_intervals_teach_what_a_replica_does() -> None:
    assert known_target(UNSET, after(1).entry, None) is None
    assert known_target(UNSET, after(2).entry, None) is None
    assert known_target(UNSET, after(3).entry, None) == pytest.approx(80.0), "80 % of 100 a second"


@pytest.mark.parametrize(
    "quiet",
    [
        {"wait": 0.01},
        {"depth": 0.0},
        {"depth": 3.0},
        {"view": view(*(pod(number) for number in range(3)), starting(4))},
        {"view": view(*(pod(number, ready_at=NOW + 170) for number in range(4)))},
    ],
    ids=["no wait", "no queue", "one queue of four", "a pod starts", "pods are new"],
)
def test_intervals_without_saturation_teach_nothing(quiet: dict[str, Any]) -> None:
    assert after(4, **quiet).entry.capacity == LearnedCapacity()


@pytest.mark.parametrize(("waited", "start"), [(0.0, 40.0), (300.0, 340.0), (36_000.0, 640.0)])
def test_hours_without_a_place_are_no_start(waited: float, start: float) -> None:
    """Ten hours of a full cluster, then a node: the window is not twenty hours from then on."""
    created = NOW - 3600 - waited
    waiting = pod(1, created_at=created, scheduled_at=created + waited, ready_at=created + waited + 40)
    assert decide(request(1, 10.0, view=view(waiting))).entry.cold_start.samples == (start,)


def test_the_same_minute_teaches_once() -> None:
    result = decide(seen(400.0))
    again = decide(dataclasses.replace(seen(400.0), entry=result.entry, now=NOW + 30))
    assert again.entry.capacity == result.entry.capacity


def test_one_odd_interval_moves_it_by_a_tenth_at_most() -> None:
    for served, expected in ((4000.0, 110.0), (4.0, 90.0)):
        capacity = decide(seen(served, entry=learned(100.0))).entry.capacity
        assert capacity.qps_per_replica is not None
        assert capacity.qps_per_replica.number == pytest.approx(expected)


def test_it_stands_in_for_the_target_and_says_so() -> None:
    result = decide(request(4, 640.0, settings=UNSET, entry=learned(100.0)))
    assert (result.replicas, result.reason) == (8, "ScaledUpDemand")
    assert result.decision is not None
    assert result.decision.message == "640 requests/s at 80 per replica, learned: qps.target is unset"


def test_a_target_that_is_set_always_counts() -> None:
    assert known_target(autoscaling(), learned(100.0), None) == 60.0
    assert decide(request(4, 240.0, entry=learned(100.0))).replicas == 4


def test_a_version_that_has_not_shown_its_limit_is_taken_for_less_than_stable() -> None:
    assert known_target(UNSET, entry(1), learned(100.0)) == pytest.approx(64.0)
    assert known_target(UNSET, learned(50.0), learned(100.0)) == pytest.approx(40.0)
    assert known_target(UNSET, entry(1), entry(4)) is None
