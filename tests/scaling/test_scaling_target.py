"""Strategy Target: demand, backlog and concurrency; guards that raise or veto; signals that cannot be trusted."""

import dataclasses
import math

import pytest
from slipway.api.samples import Quality, Sample
from slipway.scaling import known_target, replicas_for

from tests.scaling.scenes import (
    autoscaling,
    bad,
    decide,
    entry,
    long_low,
    metrics,
    outcome,
    pod,
    request,
    sample,
    starting,
    view,
)


@pytest.mark.parametrize(
    ("present", "total", "expected"),
    [
        (1, 60.0, 1),  # exactly the target
        (1, 65.9, 1),  # within the tolerance of a tenth
        (1, 66.1, 2),
        (2, 120.0, 2),
        (2, 132.1, 3),
        (3, 212.0, 4),
        (4, 480.0, 8),
        (2, 600.0, 6),  # limited to 4 more than are ready
    ],
)
def test_replicas_follow_requests_per_second(present: int, total: float, expected: int) -> None:
    assert decide(request(present, total)).replicas == expected


def test_the_numbers_are_told_when_replicas_change() -> None:
    result = decide(request(3, 212.0))
    assert outcome(result) == (4, "ScaledUpDemand")
    assert result.decision is not None
    assert (result.decision.from_, result.decision.to, result.decision.signal) == (3, 4, "qps")
    assert result.decision.message == "212 requests/s at 60 per replica"
    assert result.entry.replicas == 4
    assert result.entry.scaled_at == result.decision.at


def test_a_revision_is_sized_for_its_share() -> None:
    assert decide(request(1, 600.0, share=0.25)).replicas == 3
    assert decide(request(1, 600.0, share=0.0)).reason == "AtMinimum"


def test_pinned_requests_count_where_they_are_more_than_the_share() -> None:
    assert decide(request(1, 600.0, share=0.05, metrics=metrics(arrivals=180.0))).replicas == 3


def test_backlog_is_worked_off_within_a_minute() -> None:
    """132 requests/s are within the tolerance of two replicas; 600 waiting requests are ten more each second."""
    assert decide(request(2, 130.0)).replicas == 2
    result = decide(request(2, 130.0, metrics=metrics(depth=600.0)))
    assert outcome(result) == (3, "ScaledUpBacklog")


def test_concurrency_by_littles_law() -> None:
    """200 requests/s of 0.2 s each are 40 in flight: 5 replicas at 8."""
    settings = autoscaling(qps={}, concurrency={"target": 8})
    assert decide(request(3, 200.0, settings=settings, metrics=metrics(in_flight=200 * 0.2))).replicas == 5


def test_utilisation_stands_in_for_demand_when_nothing_else_is_set() -> None:
    settings = autoscaling(qps={})
    assert decide(request(2, 10.0, settings=settings, metrics=metrics(gpu=100.0))).replicas == 3
    assert outcome(decide(request(2, 10.0, settings=settings, metrics=metrics(gpu=72.0)))) == (2, "Steady")
    low = entry(4, plans=long_low(1))
    result = decide(request(4, 10.0, settings=settings, entry=low, metrics=metrics(gpu=10.0)))
    assert outcome(result) == (3, "ScaledDown")


def test_utilisation_of_pods_that_have_just_warmed_up_orders_nothing() -> None:
    settings = autoscaling(qps={})
    fresh = view(pod(1, ready_at=1_750_000_000.0 - 20))
    result = decide(request(1, 1.0, settings=settings, view=fresh, metrics=metrics(gpu=100.0)))
    assert outcome(result) == (1, "Steady")


def test_nothing_to_scale_on() -> None:
    settings = autoscaling(qps={}, gpuUtilization={"target": 0})
    result = decide(request(2, 10.0, settings=settings))
    assert (result.reason, result.active, result.replicas) == ("NoSignal", False, 2)


def test_gpu_guard_raises_by_at_most_half() -> None:
    result = decide(request(4, 60.0, metrics=metrics(gpu=100.0)))
    assert outcome(result) == (6, "ScaledUpGuard")
    assert decide(request(2, 60.0, metrics=metrics(gpu=76.0))).replicas == 2, "within tolerance"


def test_gpu_guard_keeps_what_utilisation_needs() -> None:
    """Demand would do with one replica, but four are 50 % busy: three of them would be at 67 %."""
    low = entry(4, plans=long_low(1))
    settings = autoscaling(scaleDown={"maxPercent": 100})
    result = decide(request(4, 30.0, settings=settings, entry=low, metrics=metrics(gpu=50.0)))
    assert result.replicas == 3


def test_memory_guard_adds_one_beyond_demand_and_never_runs_away() -> None:
    """Memory of many servers never falls: the guard must not climb to the maximum."""
    replicas = 2
    for _ in range(20):
        replicas = decide(request(replicas, 120.0, metrics=metrics(memory=99.0))).replicas
    assert replicas == 3


def test_memory_guard_keeps_replicas() -> None:
    low = entry(4, plans=long_low(1))
    result = decide(request(4, 10.0, entry=low, metrics=metrics(memory=95.0)))
    assert outcome(result) == (4, "HoldGuard")


def test_queue_guard_staffs_for_waiting() -> None:
    """At 480 requests/s 8 replicas are on target, a = 6.4; waiting adds sqrt(a) to a: 9; at most 12."""
    assert decide(request(8, 480.0, metrics=metrics(queue=0.05))).replicas == 8
    result = decide(request(8, 480.0, metrics=metrics(queue=0.101)))
    assert outcome(result) == (9, "ScaledUpGuard")
    assert decide(request(8, 480.0, metrics=metrics(queue=10.0))).replicas == 12


def test_queue_guard_waits_until_pods_it_ordered_have_shown_their_effect() -> None:
    fresh = [pod(number, ready_at=1_750_000_000.0 - 10) for number in range(8, 12)]
    pods = view(*(pod(number) for number in range(8)), *fresh)
    assert decide(request(12, 480.0, view=pods, metrics=metrics(queue=10.0))).replicas == 12


@pytest.mark.parametrize(
    ("quality", "reason"),
    [
        (Quality.MISSING, "MetricsMissing"),
        (Quality.STALE, "MetricsStale"),
        (Quality.INVALID, "MetricsInvalid"),
        (Quality.PARTIAL, "MetricsPartial"),
    ],
)
def test_demand_that_cannot_be_trusted_removes_nothing(quality: Quality, reason: str) -> None:
    """Research cases 1, 3, 4, 6: an empty, invalid or refused answer is never a load of zero."""
    low = entry(5, plans=long_low(1))
    result = decide(request(5, bad(quality), entry=low))
    assert outcome(result) == (5, reason)
    assert result.active is (quality is Quality.PARTIAL)
    assert result.entry.plans == (), "the window starts anew"


def test_partial_demand_may_raise() -> None:
    """Research case 30: one silent pod of many blocks the way down, not the way up."""
    assert decide(request(2, bad(Quality.PARTIAL, 300.0))).replicas == 5


def test_own_arrivals_may_raise_while_the_total_is_unknown() -> None:
    result = decide(request(2, None, metrics=metrics(arrivals=300.0)))
    assert outcome(result) == (5, "ScaledUpDemand")


def test_zero_with_proof_is_a_load_of_zero() -> None:
    low = entry(4, plans=long_low(1))
    assert decide(request(4, 0.0, entry=low)).replicas == 3


def test_unknown_demand_holds_and_guards_may_still_raise() -> None:
    result = decide(request(4, None, metrics=metrics(gpu=100.0)))
    assert outcome(result) == (6, "ScaledUpGuard")


def test_fallback_is_a_floor_and_lifts_only_through_the_window() -> None:
    settings = autoscaling(onMissingMetrics="AtLeast", fallbackReplicas=4)
    result = decide(request(2, None, settings=settings))
    assert outcome(result) == (4, "Fallback")
    assert outcome(decide(request(4, None, settings=settings))) == (4, "Fallback")
    assert outcome(decide(request(6, None, settings=settings))) == (6, "MetricsMissing")
    back = decide(request(4, 60.0, settings=settings, entry=result.entry))
    assert outcome(back) == (4, "HoldStabilization")


@pytest.mark.parametrize("quality", [Quality.STALE, Quality.INVALID, Quality.PARTIAL])
@pytest.mark.parametrize("signal", ["gpu_utilization", "gpu_memory", "queue_time"])
def test_a_guard_gone_bad_is_a_veto(quality: Quality, signal: str) -> None:
    low = entry(5, plans=long_low(1))
    broken = dataclasses.replace(metrics(), **{signal: bad(quality)})  # type: ignore[arg-type]
    result = decide(request(5, 30.0, entry=low, metrics=broken))
    assert outcome(result) == (5, f"Metrics{quality.value}")


def test_a_guard_that_nobody_exports_is_no_veto() -> None:
    """Research case 31: pods without a GPU must be able to scale down."""
    low = entry(5, plans=long_low(1))
    assert decide(request(5, 30.0, entry=low)).replicas == 4


def test_guards_can_be_turned_off() -> None:
    off = autoscaling(gpuUtilization={"target": 0}, gpuMemory={"upper": 0}, queueTime={"upper": "0s"})
    low = entry(4, plans=long_low(1))
    loud = metrics(gpu=100.0, memory=100.0, queue=9.0)
    assert outcome(decide(request(4, 60.0, settings=off, entry=low, metrics=loud))) == (3, "ScaledDown")


def test_no_ready_pod_never_means_no_load() -> None:
    """Research case 26."""
    low = entry(3, plans=long_low(1))
    broken = view(*(pod(number, ready=False, waiting_reason="CrashLoopBackOff") for number in range(3)))
    assert outcome(decide(request(3, 0.0, entry=low, view=broken))) == (3, "NoReadyPods")


def test_new_pods_do_not_multiply_the_need() -> None:
    """Research cases 25 and 53: 2, 4, 8, 16 while pods load a model."""
    replicas, pods = 2, [pod(0), pod(1)]
    for _ in range(10):
        replicas = decide(request(replicas, 300.0, view=view(*pods), metrics=metrics(gpu=100.0))).replicas
        pods += [starting(number) for number in range(len(pods), replicas)]
    assert replicas == 5


def test_capacity_for_the_rollout() -> None:
    assert known_target(autoscaling(), entry(1), None) == 60
    assert known_target(autoscaling(qps={}), entry(1), None) is None
    assert replicas_for(150.0, 60.0, minimum=1, maximum=8) == 3
    assert replicas_for(1000.0, 60.0, minimum=1, maximum=8) == 8
    assert replicas_for(0.0, 60.0, minimum=2, maximum=8) == 2
    assert replicas_for(10.0, None, minimum=1, maximum=8) is None


def erlang_c(servers: int, offered: float) -> float:
    """Probability that a request waits, with Poisson arrivals."""
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    return last / (last + sum(offered**k / math.factorial(k) for k in range(servers)))


@pytest.mark.parametrize(("servers", "offered", "expected"), [(2, 1, 0.3333), (6, 4, 0.2848), (10, 8, 0.4092)])
def test_erlang_c_of_the_research_table(servers: int, offered: float, expected: float) -> None:
    assert erlang_c(servers, offered) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("replicas", range(1, 15))
def test_staffing_while_requests_wait_keeps_most_of_them_from_waiting(replicas: int) -> None:
    """The square root term of Halfin and Whitt with beta 1: less than a third of requests waits, whatever the size."""
    total = 60.0 * replicas
    settings = autoscaling(maxReplicas=100, scaleUp={"maxReplicas": 100})
    chosen = decide(request(replicas, total, settings=settings, metrics=metrics(queue=0.1001))).replicas
    assert erlang_c(chosen, total * 0.8 / 60) <= 0.3


def test_missing_is_the_default_of_every_sample() -> None:
    assert Sample().quality is Quality.MISSING
    assert sample(0.0).ok
