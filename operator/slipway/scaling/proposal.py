"""What load asks for, before limits: the common answer of the strategies."""

from dataclasses import dataclass

from slipway.api.autoscaling import OnMissingMetrics
from slipway.api.samples import Quality
from slipway.scaling.reasons import ScalingReason, distrust_of
from slipway.scaling.request import ScalingRequest

__all__ = ["Proposal", "held"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Replicas that load asks for. Below the present number only if every signal can be trusted to say so."""

    replicas: int
    reason: ScalingReason
    signal: str
    message: str
    """The numbers in words."""
    detail: str = ""
    """What is worth telling while nothing changes: without numbers, so that noise is no change of status."""
    active: bool = True
    """Whether load could be judged at all."""


def held(request: ScalingRequest, quality: Quality, signal: str, detail: str) -> Proposal:
    """The present number, since a signal cannot be trusted; while it is unknown, at least the user's fallback.

    ``quality`` is that of the signal and not OK.
    """
    present, fallback = request.entry.replicas, request.autoscaling.fallback_replicas
    partial = quality is Quality.PARTIAL
    at_least = request.autoscaling.on_missing_metrics is OnMissingMetrics.AT_LEAST
    if at_least and not partial and fallback >= max(present, 1):
        text = f"{detail}; fallbackReplicas is {fallback}"
        return Proposal(fallback, ScalingReason.FALLBACK, signal, text, text, active=False)
    nothing_ready = not partial and request.view.ready == 0
    reason = ScalingReason.NO_READY_PODS if nothing_ready else distrust_of(quality)
    return Proposal(present, reason or ScalingReason.METRICS_MISSING, signal, detail, detail, active=partial)
