"""Limits: bounds, rate, cooldown, stabilisation, starting pods, a full cluster; modes and the dry run."""

from typing import Any

import pytest
from slipway.api.samples import Sample
from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time

from tests.scaling.scenes import (
    NOW,
    autoscaling,
    decide,
    entry,
    long_low,
    metrics,
    outcome,
    pod,
    request,
    round_trip,
    sample,
    starting,
    stuck,
    view,
)


def run(status: VersionStatus, total: float | Sample, *, seconds: float, start: float = 0.0, **fields: Any) -> Any:
    """Decide every 15 seconds, each time with the status read back from JSON; the last result."""
    result = None
    for tick in range(int(seconds // 15) + 1):
        pods = view(*(pod(number) for number in range(status.replicas)))
        values = {"view": pods} | fields
        result = decide(request(status.replicas, total, entry=status, now=NOW + start + 15.0 * tick, **values))
        status = round_trip(result.entry)
    assert result is not None
    return result


def test_bounds_hold_whatever_load_says() -> None:
    settings = autoscaling(maxReplicas=6)
    assert outcome(decide(request(6, 6000.0, settings=settings))) == (6, "LimitedMax")
    assert outcome(decide(request(9, 500.0, settings=settings))) == (6, "ScaledToMaximum")
    assert outcome(decide(request(1, 10.0, minimum=3))) == (3, "ScaledToMinimum")
    assert outcome(decide(request(3, 10.0, minimum=3))) == (3, "AtMinimum")
    assert outcome(decide(request(0, 0.0, minimum=0))) == (0, "Steady")
    assert decide(request(2, 0.0, settings=settings, floor=9)).replicas == 6, "maxReplicas is above the floor"


def test_the_rollouts_floor_is_met_at_once() -> None:
    """A candidate is sized before its weight rises; cooldown and step limits are about load."""
    settings = autoscaling(cooldownAppliesTo="Both")
    candidate = entry(1, role=Role.CANDIDATE, scaled_at=format_time(NOW - 5))
    result = decide(request(1, 10.0, settings=settings, entry=candidate, floor=12))
    assert outcome(result) == (12, "ScaledToFloor")


def test_first_replicas_of_a_new_revision() -> None:
    result = decide(request(0, None, minimum=2))
    assert outcome(result) == (2, "ScaledToMinimum")


def test_steps_up_count_from_ready_replicas() -> None:
    settings = autoscaling(maxReplicas=50)
    assert outcome(decide(request(2, 3000.0, settings=settings))) == (6, "ScaledUpDemand")
    pods = view(pod(0), pod(1), *(starting(number) for number in range(2, 6)))
    waiting = decide(request(6, 3000.0, settings=settings, view=pods))
    assert outcome(waiting) == (6, "LimitedRate")
    assert decide(request(10, 3000.0, settings=settings)).replicas == 20, "100 % are more than 4"


def test_down_needs_the_whole_window() -> None:
    """Research cases 28 and 38: nothing is removed until the window is filled, whatever came before."""
    result = run(entry(4), 60.0, seconds=285)
    assert outcome(result) == (4, "HoldStabilization")
    result = run(result.entry, 60.0, seconds=0, start=300)
    assert outcome(result) == (3, "ScaledDown")


def test_a_peak_within_the_window_starts_it_anew() -> None:
    result = run(entry(4), 60.0, seconds=285)
    result = run(result.entry, 240.0, seconds=0, start=300)
    result = run(result.entry, 60.0, seconds=270, start=315)
    assert outcome(result) == (4, "HoldStabilization")


def test_a_gap_in_the_record_starts_the_window_anew() -> None:
    """Research case 38: an operator that was away does not know what it missed."""
    result = run(entry(4), 60.0, seconds=200)
    result = run(result.entry, 60.0, seconds=100, start=2000)
    assert outcome(result) == (4, "HoldStabilization")


def test_a_hole_in_the_metrics_starts_the_window_anew() -> None:
    result = run(entry(4), 60.0, seconds=285)
    result = run(result.entry, Sample(), seconds=0, start=300)
    result = run(result.entry, 60.0, seconds=270, start=315)
    assert outcome(result) == (4, "HoldStabilization")


def test_the_highest_plan_of_the_window_counts() -> None:
    settings = autoscaling(scaleDown={"maxPercent": 100})
    result = run(entry(8), 60.0, seconds=150, settings=settings)
    result = run(result.entry, 200.0, seconds=0, start=165, settings=settings)
    result = run(result.entry, 60.0, seconds=120, start=180, settings=settings)
    assert outcome(result) == (4, "ScaledDown")


def test_the_window_is_at_least_two_slow_starts() -> None:
    slow = {"p50": "5m", "p90": "5m", "samples": (300.0,)}
    result = run(entry(4, cold_start=slow), 60.0, seconds=585, settings=autoscaling(forecast="Off"))
    assert outcome(result) == (4, "HoldStabilization")
    result = run(result.entry, 60.0, seconds=15, start=600, settings=autoscaling(forecast="Off"))
    assert result.replicas == 3


def test_status_remembers_few_plans_and_none_of_a_steady_load() -> None:
    """A status that changes on every tick is a write on every tick."""
    result = run(entry(4), 60.0, seconds=280)
    assert 5 <= len(result.entry.plans) <= 11
    steady = run(entry(4), 240.0, seconds=600)
    assert steady.entry == entry(4, cold_start=steady.entry.cold_start)


def test_steps_down_are_small_and_a_cooldown_apart() -> None:
    status, seen = entry(16), [16]
    result = run(status, 60.0, seconds=300)
    seen.append(result.replicas)
    result = run(result.entry, 60.0, seconds=270, start=315)
    seen.append(result.replicas)
    assert result.reason == "HoldCooldown"
    result = run(result.entry, 60.0, seconds=30, start=600)
    seen.append(result.replicas)
    assert seen == [16, 12, 12, 9]


def test_cooldown_after_a_change_in_either_direction() -> None:
    recent = entry(4, scaled_at=format_time(NOW - 200), plans=long_low(1))
    assert outcome(decide(request(4, 60.0, entry=recent))) == (4, "HoldCooldown")
    assert decide(request(4, 480.0, entry=recent)).replicas == 8, "applies to Down by default"
    both = autoscaling(cooldownAppliesTo="Both")
    assert outcome(decide(request(4, 480.0, entry=recent, settings=both))) == (4, "HoldCooldown")


def test_a_removal_that_was_not_carried_out_is_not_added_to() -> None:
    """Operator killed between status and Deployment, and away for longer than the cooldown: one step, not two."""
    cut_off = entry(3, scaled_at=format_time(NOW - 400), plans=long_low(1))
    four = view(*(pod(number) for number in range(4)))
    held = decide(request(3, 60.0, entry=cut_off, view=four))
    assert outcome(held) == (3, "HoldCooldown")
    carried_out = request(3, 60.0, entry=round_trip(held.entry))
    assert outcome(decide(carried_out)) == (3, "HoldCooldown"), "the cooldown begins when pods go"
    assert decide(request(3, 60.0, entry=cut_off)).replicas == 2
    again = decide(request(3, 60.0, entry=held.entry, view=four))
    assert again.entry.scaled_at == held.entry.scaled_at, "told once for each cooldown"


def test_nothing_is_removed_during_a_rollout() -> None:
    """Research cases 14 and 66."""
    low = entry(4, plans=long_low(1))
    assert outcome(decide(request(4, 0.0, entry=low, hold_down="RolloutInProgress"))) == (4, "RolloutInProgress")
    assert decide(request(4, 480.0, entry=low, hold_down="RolloutInProgress")).replicas == 8


def test_starting_pods_keep_replicas_but_hopeless_ones_do_not() -> None:
    """Research case 24: pods that stay pending must not block the way down."""
    low = entry(4, plans=long_low(1))
    warming = view(pod(0), pod(1), pod(2), starting(3))
    assert outcome(decide(request(4, 60.0, entry=low, view=warming))) == (4, "HoldWarmup")
    for hopeless in (stuck(3), starting(3, age=3600.0), starting(3, waiting_reason="CrashLoopBackOff")):
        pods = view(pod(0), pod(1), pod(2), hopeless)
        assert decide(request(4, 60.0, entry=low, view=pods)).replicas == 3


def test_a_full_cluster_is_not_asked_for_more() -> None:
    pods = view(pod(0), pod(1), stuck(2))
    assert outcome(decide(request(3, 600.0, view=pods))) == (3, "GPUCapacityExhausted")
    just_now = view(pod(0), pod(1), stuck(2, age=30.0))
    assert decide(request(3, 600.0, view=just_now)).replicas == 6, "a node may just be coming"


def test_only_two_pods_are_kept_waiting_for_a_place() -> None:
    pods = view(pod(0), pod(1), *(stuck(number) for number in range(2, 6)))
    result = decide(request(6, 600.0, view=pods))
    assert outcome(result) == (4, "GPUCapacityExhausted")
    after = view(pod(0), pod(1), stuck(2), stuck(3))
    assert decide(request(4, 600.0, view=after, entry=result.entry)).replicas == 4
    assert decide(request(6, 600.0, view=pods, floor=5)).replicas == 5, "the rollout's floor stays"


def test_a_quota_is_told_and_not_pressed() -> None:
    pods = view(pod(0), pod(1), failure="exceeded quota: gpus")
    result = decide(request(3, 600.0, view=pods))
    assert outcome(result) == (3, "QuotaExceeded")
    assert "exceeded quota" in result.message


@pytest.mark.parametrize(("mode", "reason"), [("External", "SetExternally"), ("None", "ScalingOff")])
def test_modes_in_which_the_user_decides(mode: str, reason: str) -> None:
    settings = autoscaling(mode=mode, maxReplicas=3)
    result = decide(request(2, 6000.0, settings=settings, spec_replicas=10))
    assert outcome(result) == (10, reason)
    assert not result.active
    assert decide(request(2, 0.0, settings=settings, spec_replicas=0)).replicas == 0
    assert decide(request(2, 0.0, settings=settings, spec_replicas=1, hold_down="RolloutInProgress")).replicas == 2
    candidate = entry(1, role=Role.CANDIDATE)
    assert decide(request(1, 0.0, settings=settings, spec_replicas=10, entry=candidate, share=0.25)).replicas == 3
    assert decide(request(1, 0.0, settings=settings, spec_replicas=10, entry=candidate, share=0, floor=5)).replicas == 5


def test_dry_run_changes_nothing_and_tells_each_proposal_once() -> None:
    settings = autoscaling(dryRun=True)
    first = decide(request(2, 300.0, settings=settings))
    assert first.replicas == 2
    assert first.decision is not None
    assert (first.decision.from_, first.decision.to) == (2, 5)
    assert first.entry.proposed == 5
    again = decide(request(2, 300.0, settings=settings, entry=first.entry))
    assert again.decision is None
    other = decide(request(2, 360.0, settings=settings, entry=again.entry))
    assert other.decision is not None
    assert other.decision.to == 6
    assert decide(request(2, 300.0, settings=settings, floor=4)).replicas == 4, "the rollout still gets its pods"


def test_messages_of_an_unchanged_number_hold_no_measured_values() -> None:
    """They end in a condition, where each other word is a write of status."""
    for total in (100.0, 101.0):
        result = decide(request(2, total))
        assert result.message == "The present replicas are right for the load, within the tolerance."
    low = entry(4, plans=long_low(1, 200.0))
    texts = {decide(request(4, total, entry=low)).message for total in (60.0, 61.0, 62.0)}
    assert len(texts) == 1


def test_memory_of_pods_learned_once() -> None:
    """Cold starts: each pod counts once, restarted ones never."""
    pods = view(pod(0), pod(1, ready_at=NOW - 3580), pod(2, restarts=1))
    first = decide(request(3, 180.0, view=pods)).entry
    assert first.cold_start.samples == (20.0, 40.0)
    assert (first.cold_start.p50, first.cold_start.p90) == ("20s", "40s")
    flapped = view(pod(0, ready_at=NOW - 5), pod(1), pod(3, created_at=NOW - 100, ready_at=NOW - 10))
    second = decide(request(3, 180.0, view=flapped, entry=round_trip(first))).entry
    assert second.cold_start.samples == (20.0, 40.0, 90.0)
    assert second.cold_start.counted == ("00000", "00001", "00003")
    assert decide(request(3, 180.0, view=flapped, entry=second)).entry == second


def test_gpu_hours_are_counted_over_gaps_and_before_pods_leave() -> None:
    pods = view(pod(0, gpus=2, created_at=NOW - 3600), pod(1, gpus=2, created_at=NOW - 1800))
    first = decide(request(2, 120.0, view=pods)).entry
    assert first.gpu_hours is not None
    assert first.gpu_hours.number == pytest.approx(3.0)
    soon = decide(request(2, 120.0, view=pods, entry=first, now=NOW + 60)).entry
    assert soon == first
    later = decide(request(2, 120.0, view=pods, entry=round_trip(soon), now=NOW + 3600)).entry
    assert later.gpu_hours is not None
    assert later.gpu_hours.number == pytest.approx(7.0)
    assert decide(request(2, 120.0)).entry.gpu_hours is None


def test_gpu_hours_leave_out_pods_without_a_place() -> None:
    placed = pod(0, gpus=1, created_at=NOW - 3600)
    waiting = starting(1, age=3600.0, gpus=1, unschedulable=True, unschedulable_since=NOW - 3600)
    status = decide(request(2, 120.0, view=view(placed, waiting))).entry
    assert status.gpu_hours is not None
    assert status.gpu_hours.number == pytest.approx(1.0)


def test_a_plan_for_the_present_number_within_the_window_holds_it() -> None:
    """After a step down, plans from before it may still ask for what there is now."""
    times = [(350.0, 2), (200.0, 4), (100.0, 2), (20.0, 2)]
    plans = [{"at": format_time(NOW - age), "replicas": replicas} for age, replicas in times]
    result = decide(request(4, 60.0, entry=entry(4, plans=plans)))
    assert outcome(result) == (4, "HoldStabilization")
    assert "4 were needed" in result.message


def test_a_rising_trend_is_followed_when_starts_are_slow() -> None:
    slow = {"p50": "5m", "p90": "5m", "samples": (300.0,)}

    def climb(settings: Any, status: VersionStatus) -> list[int]:
        replicas = []
        for tick in range(60):
            pods = view(*(pod(number) for number in range(status.replicas)))
            total = 300.0 + 2.0 * tick
            status = decide(
                request(status.replicas, total, settings=settings, entry=status, view=pods, now=NOW + 15.0 * tick)
            ).entry
            replicas.append(status.replicas)
        return replicas

    eager, plain = climb(autoscaling(), entry(5, cold_start=slow)), climb(autoscaling(forecast="Off"), entry(5))
    assert all(early >= late for early, late in zip(eager, plain, strict=True))
    assert sum(eager) > sum(plain)
    assert max(eager) <= max(plain) + 1, "capped at 1.15"
    assert climb(autoscaling(), entry(5)) == plain, "fast starts need no forecast"


def test_sample_values_of_bad_quality_are_never_read() -> None:
    low = entry(3, plans=long_low(1))
    wild = metrics(arrivals=sample(1.0), gpu=Sample(value=float("nan")), queue=Sample(value=-1.0))
    assert decide(request(3, 60.0, entry=low, metrics=wild)).replicas == 2
