"""Strategy Threshold: both up, both down, the override for saturation, and no oscillation at the band's edge."""

import pytest
from slipway.api.autoscaling import Autoscaling
from slipway.api.samples import Quality

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
    starting,
    view,
)


def bands(**settings: object) -> Autoscaling:
    return autoscaling(**({"strategy": "Threshold", "qps": {}} | settings))


@pytest.mark.parametrize(
    ("qps", "gpu", "expected"),
    [
        (80.0, 70.0, "ScaledUpThreshold"),
        (79.9, 70.0, "Steady"),
        (80.0, 69.9, "Steady"),
        (60.0, 45.0, "Steady"),
        (39.9, 20.0, "Steady"),
        (40.0, 19.9, "Steady"),
        (100.0, 5.0, "ScaledUpSaturation"),  # a dead GPU counter
        (5.0, 95.0, "ScaledUpSaturation"),  # saturated by something other than the number of requests
    ],
)
def test_bands(qps: float, gpu: float, expected: str) -> None:
    low = entry(4, plans=long_low(1))
    assert decide(request(4, qps * 4, settings=bands(), entry=low, metrics=metrics(gpu=gpu))).reason == expected


def test_down_when_both_are_low() -> None:
    low = entry(4, plans=long_low(1))
    result = decide(request(4, 39.9 * 4, settings=bands(), entry=low, metrics=metrics(gpu=19.9)))
    assert outcome(result) == (3, "ScaledDown")


def test_step_up_is_proportional() -> None:
    """400 requests/s at 60, the middle of the band, are 7 replicas, not one more."""
    settings = bands(scaleUp={"maxReplicas": 10})
    assert decide(request(2, 400.0, settings=settings, metrics=metrics(gpu=90.0))).replicas == 7


def test_waiting_requests_are_saturation() -> None:
    result = decide(request(2, 100.0, settings=bands(), metrics=metrics(gpu=50.0, queue=0.2)))
    assert outcome(result) == (3, "ScaledUpSaturation")


def test_saturation_of_ready_pods_waits_for_those_that_start() -> None:
    pods = view(pod(0), pod(1), starting(2))
    result = decide(request(3, 60.0, settings=bands(), view=pods, metrics=metrics(gpu=100.0)))
    assert result.replicas == 3


@pytest.mark.parametrize("total", [40.0, 60.0, 72.0, 72.1, 78.0, 79.9])
def test_a_step_down_must_leave_room(total: float) -> None:
    """From two replicas to one: what is left must stay clear of 80 by a tenth."""
    low = entry(2, plans=long_low(1))
    settings = bands(qps={"target": 75})
    result = decide(request(2, total, settings=settings, entry=low, metrics=metrics(gpu=10.0)))
    assert outcome(result) == ((1, "ScaledDown") if total <= 72 else (2, "HoldProjected"))


@pytest.mark.parametrize("quality", [Quality.MISSING, Quality.STALE, Quality.INVALID, Quality.PARTIAL])
def test_unknown_signals_remove_nothing(quality: Quality) -> None:
    low = entry(4, plans=long_low(1))
    without_gpu = request(4, 10.0, settings=bands(), entry=low, metrics=metrics(gpu=bad(quality)))
    assert outcome(decide(without_gpu)) == (4, f"Metrics{quality.value}")
    without_qps = request(4, bad(quality), settings=bands(), entry=low, metrics=metrics(gpu=1.0))
    assert outcome(decide(without_qps)) == (4, f"Metrics{quality.value}")


def test_saturation_works_without_the_other_signal() -> None:
    assert decide(request(2, 220.0, settings=bands())).replicas == 4
    assert decide(request(2, None, settings=bands(), metrics=metrics(gpu=99.0))).replicas == 3


def test_full_memory_keeps_replicas() -> None:
    low = entry(4, plans=long_low(1))
    result = decide(request(4, 10.0, settings=bands(), entry=low, metrics=metrics(gpu=5.0, memory=95.0)))
    assert outcome(result) == (4, "HoldGuard")


@pytest.mark.parametrize("total", [38.0, 40.0, 42.0, 72.0, 76.0, 79.0, 80.0, 81.0, 84.0, 100.0])
def test_the_edge_of_the_band_does_not_oscillate(total: float) -> None:
    """Between 40 and 80, one step leads exactly to the other edge; noise must not make one and two take turns."""
    settings = bands(cooldown="60s", stabilizationWindow="60s")
    status, changes = entry(1), 0
    for tick in range(800):
        now = NOW + 15.0 * tick
        noisy = total * (1 + 0.04 * (-1) ** tick)
        gpu = min(100.0, noisy / status.replicas * 0.9)
        pods = view(*(pod(number, created_at=NOW - 7200, ready_at=NOW - 7180) for number in range(status.replicas)))
        result = decide(
            request(
                status.replicas, noisy, settings=settings, entry=status, view=pods, metrics=metrics(gpu=gpu), now=now
            )
        )
        changes += result.decision is not None
        status = result.entry
    assert changes <= 1
