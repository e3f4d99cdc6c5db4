"""How many replicas a revision has, and why: one pure decision from spec, status, pods and metrics."""

from slipway.scaling.capacity import replicas_for
from slipway.scaling.decision import decide
from slipway.scaling.learning import known_target
from slipway.scaling.reasons import ScalingReason
from slipway.scaling.request import ScalingRequest, ScalingResult
from slipway.scaling.schedule import MinimumReplicas, minimum_at
from slipway.scaling.victims import deletion_costs

__all__ = [
    "MinimumReplicas",
    "ScalingReason",
    "ScalingRequest",
    "ScalingResult",
    "decide",
    "deletion_costs",
    "known_target",
    "minimum_at",
    "replicas_for",
]
