"""Strategy Threshold: up when QPS per replica and GPU utilisation both reach their upper value, down when both are low.

Two additions make the rule safe. A saturated replica adds one whatever the other signal says, for GPU counters can be
dead and a model can be limited by something else. And a step down is taken only if the load that remains per replica
stays clear of the upper value, else one and two replicas would take turns.
"""

from dataclasses import dataclass

from slipway.api.samples import Quality
from slipway.scaling.capacity import whole
from slipway.scaling.demand import Demand, usable
from slipway.scaling.fleet import Fleet
from slipway.scaling.proposal import Proposal, held
from slipway.scaling.reasons import ScalingReason, distrust_of
from slipway.scaling.request import ScalingRequest

__all__ = ["propose_threshold"]

SATURATED_QPS = 1.25
"""Multiple of ``qps.upper`` that is enough on its own."""
SATURATED_GPU = 95.0
"""GPU utilisation in per cent that is enough on its own."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The two signals, per replica."""

    qps: float
    """Requests per second over all replicas wanted, for those that start are capacity already."""
    qps_known: bool
    gpu: float
    gpu_known: bool
    settled: bool
    """Whether all replicas wanted are ready, so that means over ready pods speak for all."""


def propose_threshold(request: ScalingRequest, fleet: Fleet, demand: Demand) -> Proposal:
    """Replicas by the two bands, proportional to the load where it is known."""
    reading = Reading(
        qps=demand.forecast / max(fleet.wanted, 1),
        qps_known=demand.known,
        gpu=request.metrics.gpu_utilization.value,
        gpu_known=usable(request.metrics.gpu_utilization),
        settled=fleet.warming == 0 and 0 < fleet.wanted <= fleet.ready,
    )
    message = _told(reading)
    if _both_high(request, reading):
        return _up(request, fleet, demand, ScalingReason.SCALED_UP_THRESHOLD, "qps and gpu", message)
    saturated = _saturated(request, reading)
    if saturated:
        return _up(request, fleet, demand, ScalingReason.SCALED_UP_SATURATION, saturated, message)
    gpu = request.metrics.gpu_utilization
    for signal, quality, reason in (("qps", demand.quality, demand.reason), ("gpu", gpu.quality, gpu.reason)):
        if quality is not Quality.OK:
            return held(request, quality, signal, f"{signal}: {reason or quality.lower()}")
    return _down(request, fleet, demand, reading, message)


def _both_high(request: ScalingRequest, reading: Reading) -> bool:
    scaling = request.autoscaling
    qps_high = reading.qps_known and reading.qps >= scaling.qps.upper
    return qps_high and reading.gpu_known and reading.gpu >= scaling.gpu_utilization.upper


def _saturated(request: ScalingRequest, reading: Reading) -> str:
    """The signal that alone shows saturation; empty when none does."""
    queue, upper = request.metrics.queue_time, request.autoscaling.queue_time.upper.seconds
    if reading.qps_known and reading.qps >= SATURATED_QPS * request.autoscaling.qps.upper:
        return "qps"
    if reading.settled and reading.gpu_known and reading.gpu >= SATURATED_GPU:
        return "gpu"
    if reading.settled and queue.ok and 0 < upper < queue.value:
        return "queueTime"
    return ""


def _up(
    request: ScalingRequest, fleet: Fleet, demand: Demand, reason: ScalingReason, signal: str, message: str
) -> Proposal:
    proportional = whole(demand.forecast / _aim(request)) if demand.known else 0
    return Proposal(max(fleet.wanted + 1, proportional), reason, signal, message)


def _down(request: ScalingRequest, fleet: Fleet, demand: Demand, reading: Reading, message: str) -> Proposal:
    """Fewer replicas if both signals are low, no guard objects and the load left per replica is clear of upper."""
    scaling, metrics = request.autoscaling, request.metrics
    if not (reading.qps < scaling.qps.lower and reading.gpu < scaling.gpu_utilization.lower):
        return Proposal(fleet.wanted, ScalingReason.STEADY, "qps and gpu", message)
    for signal, sample, upper in (
        ("gpuMemory", metrics.gpu_memory, scaling.gpu_memory.upper),
        ("queueTime", metrics.queue_time, scaling.queue_time.upper.seconds),
    ):
        untrusted = sample.quality not in (Quality.OK, Quality.MISSING)
        if upper > 0 and (untrusted or (sample.ok and sample.value > upper)):
            reason = (distrust_of(sample.quality) if untrusted else None) or ScalingReason.HOLD_GUARD
            detail = f"{signal}: {sample.reason or sample.quality.lower()}" if untrusted else ""
            return Proposal(fleet.wanted, reason, signal, f"{signal} speaks against fewer replicas", detail)
    gpu_room = (1 - scaling.tolerance) * scaling.gpu_utilization.upper
    needed = max(
        whole(demand.forecast / _aim(request)),
        _fitting(fleet.ready * reading.gpu, gpu_room, fleet.wanted),
        _fitting(demand.forecast, (1 - scaling.tolerance) * scaling.qps.upper, fleet.wanted),
    )
    if needed >= fleet.wanted:
        reason = ScalingReason.HOLD_PROJECTED if fleet.wanted > 1 else ScalingReason.STEADY
        return Proposal(fleet.wanted, reason, "qps and gpu", message)
    return Proposal(needed, ScalingReason.SCALED_DOWN, "qps and gpu", message)


def _aim(request: ScalingRequest) -> float:
    """Requests per second and replica that a step aims at: ``qps.target``, else the middle of the band."""
    qps = request.autoscaling.qps
    return qps.target if qps.target is not None else (qps.upper + qps.lower) / 2


def _fitting(load: float, room: float, present: int) -> int:
    """Replicas with at most ``room`` of the load each; all of the present ones when there is no room at all."""
    if load <= 0:
        return 0
    return whole(load / room) if room > 0 else present


def _told(reading: Reading) -> str:
    qps = f"{reading.qps:.4g} requests/s" if reading.qps_known else "unknown requests/s"
    gpu = f"{reading.gpu:.3g} % GPU" if reading.gpu_known else "unknown GPU utilisation"
    return f"{qps} and {gpu} per replica"
