"""Guards of the Target strategy: signals that may raise the number of replicas or veto a lower one, never lower it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from slipway.api.samples import Quality, Sample
from slipway.scaling.capacity import whole
from slipway.scaling.fleet import Fleet
from slipway.scaling.proposal import Proposal
from slipway.scaling.reasons import ScalingReason, distrust_of
from slipway.scaling.request import ScalingRequest

__all__ = ["guarded"]

LARGEST_RAISE = 1.5
"""A guard multiplies the ready pods by at most this, and waits until what was ordered last has shown its effect: one
start lies between two of its raises."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What one guard asks for."""

    signal: str
    message: str
    raise_to: int = 0
    keep: int = 0
    """Replicas below which it does not let the number fall."""
    distrust: ScalingReason | None = None
    """Set when the signal exists but cannot be trusted, which keeps every replica."""
    detail: str = ""
    """What is wrong with it then."""


def guarded(request: ScalingRequest, fleet: Fleet, proposal: Proposal, *, needed: float | None) -> Proposal:
    """The proposal raised by guards, or held at the present number.

    ``needed`` are the fractional replicas that demand asks for once requests wait; ``None`` while demand is unknown.
    """
    guards = [
        *_utilization(request, fleet),
        *_memory(request, fleet, proposal, needed),
        *_queue(request, fleet, needed),
    ]
    if not guards:
        return proposal
    highest = max(guards, key=lambda guard: guard.raise_to)
    if highest.raise_to > max(proposal.replicas, fleet.wanted):
        return replace(
            proposal,
            replicas=highest.raise_to,
            reason=ScalingReason.SCALED_UP_GUARD,
            signal=highest.signal,
            message=highest.message,
        )
    keeping = max(guards, key=lambda guard: guard.keep)
    if keeping.keep > proposal.replicas:
        return replace(
            proposal,
            replicas=min(keeping.keep, fleet.wanted),
            reason=keeping.distrust or ScalingReason.HOLD_GUARD,
            signal=keeping.signal,
            message=keeping.message,
            detail=keeping.detail or proposal.detail,
        )
    return proposal


def _utilization(request: ScalingRequest, fleet: Fleet) -> Iterator[Guard]:
    sample, target = request.metrics.gpu_utilization, request.autoscaling.gpu_utilization.target
    if target <= 0:
        return
    if not sample.ok:
        yield from _distrusted("gpu", sample, fleet)
        return
    needed = fleet.ready * sample.value / target
    above = sample.value > target * (1 + request.autoscaling.tolerance) and not _worked_off(request)
    message = f"{sample.value:.3g} % {request.metrics.gpu_source or 'GPU utilisation'} at a target of {target:g} %"
    largest = math.ceil(fleet.ready * LARGEST_RAISE)
    yield Guard(
        "gpu",
        message,
        raise_to=min(whole(needed), largest) if above and fleet.settled else 0,
        keep=min(whole(needed), fleet.wanted),
    )


def _memory(request: ScalingRequest, fleet: Fleet, proposal: Proposal, needed: float | None) -> Iterator[Guard]:
    """One replica more than load asks for, not than there are: memory of many servers never falls again."""
    sample, upper = request.metrics.gpu_memory, request.autoscaling.gpu_memory.upper
    if upper <= 0:
        return
    if not sample.ok:
        yield from _distrusted("gpuMemory", sample, fleet)
    elif sample.value > upper:
        message = f"{sample.value:.3g} % of GPU memory used, above {upper:g} %"
        asked = 0 if needed is None else min(whole(needed), proposal.replicas) + 1
        yield Guard("gpuMemory", message, raise_to=asked, keep=fleet.wanted)


def _queue(request: ScalingRequest, fleet: Fleet, needed: float | None) -> Iterator[Guard]:
    sample, upper = request.metrics.queue_time, request.autoscaling.queue_time.upper.seconds
    if upper <= 0:
        return
    if not sample.ok:
        yield from _distrusted("queueTime", sample, fleet)
    elif sample.value > upper:
        message = f"requests wait {sample.value * 1000:.4g} ms, above {upper * 1000:g} ms"
        by_wait = math.ceil(fleet.ready * min(LARGEST_RAISE, sample.value / upper)) if fleet.settled else 0
        yield Guard("queueTime", message, raise_to=max(by_wait, whole(needed or 0.0)), keep=fleet.wanted)


def _worked_off(request: ScalingRequest) -> bool:
    """Whether a backlog is being worked off that is planned for: GPUs are full then however many there are."""
    depth = request.metrics.queue_depth
    return request.autoscaling.qps.target is not None and depth.ok and depth.value > 0


def _distrusted(signal: str, sample: Sample, fleet: Fleet) -> Iterator[Guard]:
    """A signal that nobody exports is no veto; one that went bad is."""
    if sample.quality is not Quality.MISSING:
        message, reason = f"{signal} is {sample.quality.lower()}", distrust_of(sample.quality)
        detail = f"{signal}: {sample.reason or sample.quality.lower()}"
        yield Guard(signal, message, keep=fleet.wanted, distrust=reason, detail=detail)
