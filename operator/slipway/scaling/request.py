"""What a scaling decision is made from and what comes out of it."""

from dataclasses import dataclass

from slipway.api.autoscaling import Autoscaling
from slipway.api.observed import RevisionView
from slipway.api.samples import RevisionMetrics, Sample
from slipway.api.status import ScalingDecision, VersionStatus

__all__ = ["ScalingRequest", "ScalingResult"]


@dataclass(frozen=True, slots=True)
class ScalingRequest:
    """One revision at one moment."""

    autoscaling: Autoscaling
    spec_replicas: int
    """``spec.replicas``, which counts in the modes External and None."""
    entry: VersionStatus
    """The revision's status; ``entry.replicas`` are the replicas wanted up to now."""
    view: RevisionView
    metrics: RevisionMetrics
    total_arrivals: Sample
    """Requests per second over all revisions of the ModelDeployment."""
    share: float
    """The revision's share of them, 0 to 1: the greater of intended and observed weight."""
    floor: int
    """Replicas that the rollout needs now."""
    minimum: int
    """Fewest replicas: minReplicas for stable, 1 for a candidate."""
    hold_down: str
    """Reason code why replicas must not be removed now; empty when they may."""
    now: float
    """Seconds since the epoch."""
    minimum_from: str = "minReplicas"
    """The setting that ``minimum`` comes from."""
    target_learned: bool = False
    """Whether ``autoscaling.qps.target`` was learned, since the user has set none."""


@dataclass(frozen=True, slots=True)
class ScalingResult:
    """How many replicas a revision is to have, and why."""

    replicas: int
    entry: VersionStatus
    """The revision's status with replicas and everything that the next decision must remember."""
    decision: ScalingDecision | None
    """Set when the number changes or, in a dry run, would change otherwise than it would have before."""
    active: bool
    """Whether load decides at present: false while signals are unknown and in the modes External and None."""
    reason: str
    """A :class:`ScalingReason`, or ``hold_down`` of the request."""
    signal: str
    message: str
    """The reason in words, without measured numbers: it only changes when something does. Those are in ``decision``."""
