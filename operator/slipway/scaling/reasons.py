"""Reason codes of scaling; each says in one word why there are this many replicas."""

from enum import StrEnum

from slipway.api.samples import Quality

__all__ = ["ScalingReason", "distrust_of"]


class ScalingReason(StrEnum):
    """Why a number of replicas was chosen, or kept. ``meaning`` is the sentence for people."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> "ScalingReason":
        """A member is a string with a sentence beside it."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    SCALED_UP_DEMAND = "ScaledUpDemand", "The load is more than the replicas are meant to carry."
    SCALED_UP_BACKLOG = "ScaledUpBacklog", "Waiting requests could not be worked off in time."
    SCALED_UP_GUARD = "ScaledUpGuard", "GPU utilisation, GPU memory or queue time is above its limit."
    SCALED_UP_THRESHOLD = "ScaledUpThreshold", "Requests per second and GPU utilisation both reached their upper value."
    SCALED_UP_SATURATION = "ScaledUpSaturation", "One signal alone shows that the replicas are saturated."
    SCALED_DOWN = "ScaledDown", "The load has needed fewer replicas for the whole stabilisation window."
    SCALED_TO_FLOOR = "ScaledToFloor", "The rollout needs these replicas before it moves weight."
    SCALED_TO_MINIMUM = "ScaledToMinimum", "minReplicas asks for these replicas."
    SCALED_TO_MAXIMUM = "ScaledToMaximum", "maxReplicas allows no more."
    FALLBACK = "Fallback", "Demand is unknown, so fallbackReplicas is the floor."
    STEADY = "Steady", "The present replicas are right for the load, within the tolerance."
    AT_MINIMUM = "AtMinimum", "The load needs fewer replicas, minReplicas or the rollout asks for these."
    HOLD_COOLDOWN = "HoldCooldown", "The last change was too short a time ago."
    HOLD_STABILIZATION = "HoldStabilization", "More replicas were needed within the stabilisation window."
    HOLD_WARMUP = "HoldWarmup", "Pods are still starting, so nothing is removed."
    HOLD_GUARD = "HoldGuard", "GPU utilisation, GPU memory or queue time speaks against removing a replica."
    HOLD_PROJECTED = "HoldProjected", "With fewer replicas the load would reach the upper value again."
    NO_READY_PODS = "NoReadyPods", "No pod is ready, so nothing is removed."
    NO_SIGNAL = "NoSignal", "Neither QPS, concurrency nor GPU utilisation has a target."
    METRICS_MISSING = "MetricsMissing", "There are no samples of a signal, which is not the same as no load."
    METRICS_STALE = "MetricsStale", "The samples of a signal are too old."
    METRICS_INVALID = "MetricsInvalid", "A signal is not a number that it can be."
    METRICS_PARTIAL = "MetricsPartial", "Some pods report nothing, so a signal is only a lower bound."
    LIMITED_MAX = "LimitedMax", "The load needs more than maxReplicas."
    LIMITED_RATE = "LimitedRate", "The step up waits until the pods of the last one are ready."
    GPU_CAPACITY_EXHAUSTED = "GPUCapacityExhausted", "The cluster has no place for more pods."
    QUOTA_EXCEEDED = "QuotaExceeded", "Pods cannot be created, for example because of a quota."
    SET_EXTERNALLY = "SetExternally", "spec.replicas decides; something outside sets it through /scale."
    SET_BY_HPA = "SetByHPA", "The HorizontalPodAutoscaler that Slipway wrote decides."
    SCALER_CONFLICT = "ScalerConflict", "Somebody else's scaler sets the replicas; remove it or set mode External."
    SCALING_OFF = "ScalingOff", "spec.replicas decides; autoscaling is off."


_DISTRUST = {
    Quality.MISSING: ScalingReason.METRICS_MISSING,
    Quality.STALE: ScalingReason.METRICS_STALE,
    Quality.INVALID: ScalingReason.METRICS_INVALID,
    Quality.PARTIAL: ScalingReason.METRICS_PARTIAL,
}


def distrust_of(quality: Quality) -> ScalingReason | None:
    """Why a sample of this quality cannot justify fewer replicas; ``None`` when it can."""
    return _DISTRUST.get(quality)
