"""Faults of one signal while all others go on: whatever a decision rests on must be whole before it removes anything.

The pods are those of ``test_scaling_faults``, with every series that the runtime exports: its own share of busy time
stands in for a GPU exporter, and its counters of waits bear witness of requests.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from slipway.api.autoscaling import CooldownAppliesTo
from slipway.api.samples import Quality, Sample
from slipway.api.timestamps import format_time
from slipway.metrics.snapshot import Answers

from tests.scaling.scenes import (
    NOW,
    autoscaling,
    bad,
    decide,
    entry,
    long_low,
    metrics,
    outcome,
    pod,
    request,
    round_trip,
)
from tests.scaling.test_scaling_faults import PODS, SCALERS, decided, healthy, old, read, series

IN_FLIGHT = "slipway_requests_in_flight"
REQUESTS = "slipway_requests_total"
WAITS = "slipway_queue_duration_seconds_count"
WAITED = "slipway_queue_duration_seconds_sum"
DEPTH = "slipway_queue_depth"
UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"


def whole() -> Answers:
    """The healthy pods with queue depths and busy time."""
    good = healthy()
    depths = [series(DEPTH, number, lambda step: 0.0) for number in range(PODS)]
    busy = [series("slipway_executor_busy_seconds_total", number, lambda step: 1.5 * step) for number in range(PODS)]
    return dataclasses.replace(good, servers=(*good.servers[:3], [*good.servers[3], *depths, *busy]))


def said(text: str, values: list[Any]) -> list[Any]:
    return [*values[:-1], [values[-1][0], text]]


def gone(values: list[Any]) -> list[Any]:
    return values[:0]


KINDS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "NaN": partial(said, "NaN"),
    "infinite": partial(said, "+Inf"),
    "negative": partial(said, "-5"),
    "stale": old,
    "gone": gone,
}


def spoilt(name: str, kind: str, share: float) -> Answers:
    """The answers with one metric of the first pods at fault."""
    hit = {pod(number).name for number in range(int(PODS * share))}

    def change(item: dict[str, Any]) -> dict[str, Any]:
        labels = item["metric"]
        if labels["__name__"] != name or (labels.get("exported_pod") or labels["pod"]) not in hit:
            return item
        return item | {"values": KINDS[kind](item["values"])}

    good = whole()
    servers = tuple([change(item) for item in result] for result in good.servers)
    return dataclasses.replace(good, servers=servers, gpus=[change(item) for item in good.gpus])


EVERYWHERE = [
    *((REQUESTS, kind, share) for kind in KINDS for share in (1.0, 0.5, 0.1)),
    *((WAITS, kind, share) for kind in KINDS for share in (1.0, 0.5, 0.1) if (kind, share) != ("gone", 1.0)),
    *((WAITED, kind, share) for kind in KINDS for share in (1.0, 0.5, 0.1)),
    *((IN_FLIGHT, kind, share) for kind in KINDS if kind != "gone" for share in (1.0, 0.5, 0.1)),
    *((DEPTH, kind, share) for kind in KINDS for share in (1.0, 0.5, 0.1) if (kind, share) != ("gone", 1.0)),
    *((UTILIZATION, kind, share) for kind in KINDS for share in (1.0, 0.5, 0.1)),
]
"""Signals that nobody exports at all are no faults: no server has to have a queue."""


def test_the_pods_without_a_fault_lose_some() -> None:
    for spec in SCALERS.values():
        assert decided(read(whole()), spec, gpu_exported=True).replicas < PODS


@pytest.mark.parametrize(("name", "kind", "share"), EVERYWHERE)
def test_a_fault_of_one_signal_removes_nothing(name: str, kind: str, share: float) -> None:
    assert decided(read(spoilt(name, kind, share)), gpu_exported=True).replicas == PODS


@pytest.mark.parametrize(("name", "kind", "share"), [case for case in EVERYWHERE if case[0] != DEPTH])
def test_nor_does_it_with_strategy_threshold(name: str, kind: str, share: float) -> None:
    assert decided(read(spoilt(name, kind, share)), SCALERS["threshold"], gpu_exported=True).replicas == PODS


@pytest.mark.parametrize("kind", KINDS)
def test_a_board_that_has_never_told_its_load_is_no_lost_exporter(kind: str) -> None:
    """The server's own word stands in, as where there is no exporter."""
    assert decided(read(spoilt(UTILIZATION, kind, 1.0)), SCALERS["gpu"], gpu_exported=False).replicas < PODS


def test_the_load_of_some_gpus_is_not_taken_for_that_of_all() -> None:
    """An exporter on one of ten nodes: what it sees there orders nothing for the others, however often it is asked."""
    good = healthy()
    seen = [item | {"values": [[at, "100"] for at, _ in item["values"]]} for item in good.gpus[:3]]
    view = read(dataclasses.replace(good, gpus=seen))
    assert view.revisions
    assert next(iter(view.revisions.values())).gpu_utilization.value == pytest.approx(10.0)
    for name in ("gpu", "threshold"):
        assert decided(view, SCALERS[name]).replicas == PODS


def test_pods_that_nobody_scrapes_count_as_idle() -> None:
    good = metrics(90.0)
    half = dataclasses.replace(good, reporting_pods=frozenset(pod(number).name for number in range(5)))
    settings = autoscaling(qps={})
    assert decide(request(10, settings=settings, metrics=good)).replicas == 13
    assert decide(request(10, settings=settings, metrics=half)).replicas == 10


def test_a_backlog_that_cannot_be_read_keeps_replicas() -> None:
    settings = entry(10, plans=long_low(2))
    unread = dataclasses.replace(metrics(), queue_depth=bad(Quality.INVALID))
    assert outcome(decide(request(10, 100.0, entry=settings, metrics=unread))) == (10, "MetricsInvalid")
    assert decide(request(10, 900.0, entry=settings, metrics=unread)).replicas == 15
    assert decide(request(10, 100.0, entry=settings, metrics=metrics(depth=0.0))).replicas == 8


DAY = 86_400.0


def test_a_clock_that_was_a_day_ahead_holds_for_no_longer_than_a_window() -> None:
    plans = tuple({"at": format_time(NOW + DAY - age), "replicas": 2} for age in range(660, 0, -30))
    left = entry(10, plans=plans, scaled_at=format_time(NOW + DAY))
    both = autoscaling(cooldownAppliesTo=CooldownAppliesTo.BOTH)
    assert decide(request(10, 900.0, entry=left, settings=both)).replicas == 15
    for age in range(0, 330, 15):
        now = NOW + age
        result = decide(request(10, Sample(100.0, Quality.OK, now), entry=round_trip(left), now=now))
        left = result.entry
        assert (result.replicas < 10) == (age >= 300)
        if result.replicas < 10:
            return
    pytest.fail("nothing was ever removed")


def test_a_change_a_moment_ahead_still_counts() -> None:
    """Two operators' clocks differ by a little."""
    left = entry(10, plans=long_low(2), scaled_at=format_time(NOW + 3))
    assert outcome(decide(request(10, 100.0, entry=left))) == (10, "HoldCooldown")
