"""Properties of every decision, whatever is seen."""

import dataclasses
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.api.autoscaling import Autoscaling, CooldownAppliesTo
from slipway.api.observed import PodView
from slipway.api.samples import Quality, Sample
from slipway.api.status import ColdStart, PlanSample, Role, VersionStatus
from slipway.api.timestamps import format_time
from slipway.scaling import ScalingReason, ScalingRequest

from tests.scaling.scenes import (
    NOW,
    bad,
    decide,
    entry,
    metrics,
    pod,
    request,
    round_trip,
    sample,
    starting,
    stuck,
    view,
)

UNTRUSTED = [Quality.MISSING, Quality.STALE, Quality.INVALID]


def samples(largest: float) -> st.SearchStrategy[Sample]:
    values = st.floats(0, largest)
    return st.one_of(values.map(sample), st.builds(bad, st.sampled_from([*UNTRUSTED, Quality.PARTIAL]), values))


@st.composite
def settings_of(draw: st.DrawFn, /, **fixed: Any) -> Autoscaling:
    maximum = draw(st.integers(1, 30))
    raw: dict[str, Any] = {
        "minReplicas": draw(st.integers(1, maximum)),
        "maxReplicas": maximum,
        "strategy": draw(st.sampled_from(["Target", "Threshold"])),
        "qps": {"target": draw(st.sampled_from([None, 1.0, 60.0])), "upper": 80, "lower": 40},
        "concurrency": {"target": draw(st.sampled_from([0, 8]))},
        "tolerance": draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        "cooldown": draw(st.sampled_from(["0s", "1m", "5m"])),
        "cooldownAppliesTo": draw(st.sampled_from(["Down", "Both"])),
        "stabilizationWindow": draw(st.sampled_from(["0s", "1m", "5m"])),
        "scaleUp": {"maxPercent": draw(st.sampled_from([1, 100])), "maxReplicas": draw(st.integers(1, 5))},
        "scaleDown": {"maxPercent": draw(st.sampled_from([1, 25, 100]))},
        "onMissingMetrics": draw(st.sampled_from(["Hold", "AtLeast"])),
        "fallbackReplicas": draw(st.integers(0, maximum)),
        "forecast": draw(st.sampled_from(["Auto", "Off"])),
        "dryRun": draw(st.booleans()),
    }
    return Autoscaling.model_validate(raw | fixed)


@st.composite
def pods_of(draw: st.DrawFn, most: int) -> tuple[PodView, ...]:
    kinds = draw(st.lists(st.sampled_from(["ready", "new", "starting", "failing", "stuck"]), max_size=most))
    makers = {
        "ready": pod,
        "new": lambda number: pod(number, created_at=NOW - 50, ready_at=NOW - 10),
        "starting": starting,
        "failing": lambda number: starting(number, waiting_reason="CrashLoopBackOff", restarts=4),
        "stuck": stuck,
    }
    return tuple(makers[kind](number) for number, kind in enumerate(kinds))


@st.composite
def plans_of(draw: st.DrawFn) -> tuple[PlanSample, ...]:
    ages = draw(st.lists(st.floats(0, 700), max_size=6).map(lambda values: sorted(values, reverse=True)))
    return tuple(PlanSample(at=format_time(NOW - age), replicas=draw(st.integers(0, 20))) for age in ages)


@st.composite
def requests(draw: st.DrawFn, /, **fixed: Any) -> ScalingRequest:
    replicas = draw(st.integers(0, 32))
    scaling = draw(settings_of(**fixed))
    started = draw(st.lists(st.floats(1, 900), max_size=5))
    status = entry(
        replicas,
        role=draw(st.sampled_from([Role.STABLE, Role.CANDIDATE])),
        plans=draw(plans_of()),
        cold_start=ColdStart(samples=tuple(started)),
        scaled_at=draw(st.one_of(st.just(""), st.floats(0, 400).map(lambda age: format_time(NOW - age)))),
    )
    return request(
        replicas,
        draw(samples(3000.0)),
        settings=scaling,
        entry=status,
        view=view(*draw(pods_of(10))),
        metrics=metrics(
            gpu=draw(samples(100.0)),
            arrivals=draw(samples(3000.0)),
            queue=draw(samples(3.0)),
            memory=draw(samples(100.0)),
            in_flight=draw(samples(400.0)),
            depth=draw(st.floats(0, 100)),
        ),
        share=draw(st.floats(0, 1)),
        floor=draw(st.integers(0, 40)),
        minimum=scaling.min_replicas,
        hold_down=draw(st.sampled_from(["", "RolloutInProgress"])),
    )


@given(requests())
def test_bounds_always_hold(seen: ScalingRequest) -> None:
    result = decide(seen)
    most = seen.autoscaling.max_replicas
    assert min(max(seen.minimum, seen.floor), most) <= result.replicas <= most


@given(requests())
def test_a_decision_goes_with_every_change_and_says_why(seen: ScalingRequest) -> None:
    result = decide(seen)
    assert result.reason in set(ScalingReason) | {"RolloutInProgress"}
    assert result.entry.replicas == result.replicas
    if result.replicas != seen.entry.replicas:
        assert result.decision is not None
        assert (result.decision.from_, result.decision.to) == (seen.entry.replicas, result.replicas)
        assert result.decision.message
    elif not seen.autoscaling.dry_run:
        assert result.decision is None
        # A cooldown that was over before the removal it follows was carried out begins anew.
        unfinished = seen.view.replicas > result.replicas
        assert result.entry.scaled_at in {seen.entry.scaled_at, *([format_time(NOW)] if unfinished else [])}


@given(requests())
def test_a_restarted_operator_decides_the_same(seen: ScalingRequest) -> None:
    first = decide(seen)
    again = decide(dataclasses.replace(seen, entry=round_trip(seen.entry)))
    assert again == first
    assert round_trip(first.entry) == first.entry


@given(requests(), st.sampled_from(UNTRUSTED))
def test_unknown_demand_never_lowers(seen: ScalingRequest, quality: Quality) -> None:
    """But for pods that have no place in the cluster, and a maximum that was lowered."""
    blind = dataclasses.replace(
        seen,
        total_arrivals=bad(quality, seen.total_arrivals.value),
        metrics=dataclasses.replace(
            seen.metrics, in_flight=bad(quality), gpu_utilization=bad(quality), arrivals=bad(quality)
        ),
        view=view(*(item for item in seen.view.pods if not item.unschedulable)),
    )
    assert decide(blind).replicas >= min(seen.entry.replicas, seen.autoscaling.max_replicas)


@given(requests(), st.floats(0, 3000), st.floats(0, 3000))
def test_more_demand_never_means_fewer_replicas(seen: ScalingRequest, one: float, other: float) -> None:
    less, more = sorted((one, other))
    few = decide(dataclasses.replace(seen, total_arrivals=sample(less)))
    many = decide(dataclasses.replace(seen, total_arrivals=sample(more)))
    assert few.replicas <= many.replicas


@given(requests())
def test_pods_on_their_way_limit_what_is_ordered(seen: ScalingRequest) -> None:
    ready = sum(1 for item in seen.view.pods if item.ready)
    limit = seen.autoscaling.scale_up
    largest = ready + max(-(-ready * limit.max_percent // 100), limit.max_replicas)
    allowed = max(seen.entry.replicas, largest, seen.minimum, seen.floor)
    assert decide(seen).replicas <= allowed


@given(st.integers(1, 20), st.floats(-1, 1))
def test_within_tolerance_is_an_exact_no_op(replicas: int, deviation: float) -> None:
    total = 60.0 * replicas * (1 + 0.0999 * deviation)
    status = entry(replicas)
    first = decide(request(replicas, total, entry=status)).entry
    assert decide(request(replicas, total, entry=first, now=NOW + 15)).entry == first
    assert first == status.model_copy(update={"cold_start": first.cold_start})


@given(requests(dryRun=False))
def test_deciding_twice_at_one_moment_changes_nothing_more_but_for_bounds(seen: ScalingRequest) -> None:
    """With the cooldown in force for both directions a change is final until it is over."""
    scaling = seen.autoscaling.model_copy(update={"cooldown_applies_to": CooldownAppliesTo.BOTH})
    seen = dataclasses.replace(seen, autoscaling=scaling)
    first = decide(seen)
    if first.decision is None or scaling.cooldown.seconds == 0:
        return
    calm = view(*(item for item in seen.view.pods if not item.unschedulable))
    again = decide(dataclasses.replace(seen, entry=first.entry, view=calm))
    assert again.decision is None


@settings(max_examples=30)
@given(
    st.lists(st.floats(0, 900), min_size=20, max_size=60),
    st.sampled_from(["Target", "Threshold"]),
    st.integers(0, 2**16),
)
def test_cooldown_lies_between_two_changes(loads: list[float], strategy: str, faults: int) -> None:
    """Every change but those to bounds, over a stretch of time with faults in between, restarted at each tick."""
    scaling = Autoscaling.model_validate(
        {"strategy": strategy, "maxReplicas": 15, "qps": {"target": 60}, "cooldownAppliesTo": "Both"}
    )
    status: VersionStatus = entry(2)
    last: float | None = None
    for tick, load in enumerate(loads):
        now = NOW + 30.0 * tick
        broken = bool(faults >> (tick % 16) & 1)
        before = status.replicas
        pods = view(*(pod(number) for number in range(before)))
        arrivals = bad(Quality.STALE, load) if broken else sample(load)
        gpu = min(100.0, load / before)
        result = decide(
            request(before, arrivals, settings=scaling, entry=status, view=pods, metrics=metrics(gpu=gpu), now=now)
        )
        status = round_trip(result.entry)
        if broken:
            assert result.replicas >= before
        if result.replicas != before:
            assert last is None or now - last >= 300.0
            last = now
