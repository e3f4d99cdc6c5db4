"""How many replicas a revision has, and why: one pure decision from spec, status, pods and metrics."""

from slipway.scaling.capacity import capacity_per_replica, replicas_for
from slipway.scaling.decision import decide
from slipway.scaling.reasons import ScalingReason
from slipway.scaling.request import ScalingRequest, ScalingResult

__all__ = [
    "ScalingReason",
    "ScalingRequest",
    "ScalingResult",
    "capacity_per_replica",
    "decide",
    "replicas_for",
]
