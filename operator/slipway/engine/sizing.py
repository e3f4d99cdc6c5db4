"""Scaling of all live revisions of one object, and the capacities that the rollout reckons with."""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.api.autoscaling import ScalingMode
from slipway.api.events import EventRecord
from slipway.api.observed import Observed
from slipway.api.samples import MetricsView, Quality, Sample
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, ScalingDecision, Stage, VersionStatus
from slipway.rollout import Capacity
from slipway.scaling import MinimumReplicas, ScalingRequest, capacity_per_replica, minimum_at
from slipway.scaling import decide as decide_scaling

__all__ = ["ScalingState", "Sizing", "capacities", "scale", "total_arrivals"]

DECISIONS = 20


@dataclass(frozen=True, slots=True)
class ScalingState:
    """How scaling of the stable version stands, for its condition."""

    active: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Sizing:
    """The status with replicas decided, and what goes with it."""

    status: ModelDeploymentStatus
    events: tuple[EventRecord, ...]
    state: ScalingState


def total_arrivals(status: ModelDeploymentStatus, metrics: MetricsView) -> Sample:
    """All arrivals in requests per second; as good as the worst sample of a version that has weight."""
    value, at, worst = 0.0, metrics.at, Sample(0.0, Quality.OK, metrics.at)
    seen = False
    for entry in status.versions:
        sample = metrics.of(entry.revision).arrivals
        if sample.ok:
            value += sample.value
            at = min(at, sample.at)
            seen = True
        elif entry.weight.applied > 0:
            worst = sample
    if not seen or not worst.ok:
        reason = worst.reason or metrics.error
        quality = worst.quality if not worst.ok else Quality.MISSING
        return Sample(value, quality, worst.at, reason)
    return Sample(value, Quality.OK, at)


def capacities(
    spec: ModelDeploymentSpec, status: ModelDeploymentStatus, metrics: MetricsView
) -> Mapping[str, Capacity]:
    """The capacity of each revision, as far as demand and the capacity of a replica are known."""
    demand = total_arrivals(status, metrics)
    stable = status.in_role(Role.STABLE)
    reference = max(1, stable.replicas) if stable else spec.autoscaling.min_replicas
    if status.rollout is not None and status.rollout.stage is not Stage.FINISHED and status.rollout.reference:
        reference = status.rollout.reference
    maximum = max(spec.autoscaling.max_replicas, 1)
    if spec.autoscaling.mode in (ScalingMode.EXTERNAL, ScalingMode.NONE):
        maximum = max(spec.replicas, 1)
    return {
        entry.revision: Capacity(
            demand=demand.value if demand.ok else None,
            per_replica=capacity_per_replica(spec.autoscaling),
            reference=reference,
            maximum=maximum,
        )
        for entry in status.versions
    }


def scale(
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    observed: Observed,
    metrics: MetricsView,
    floors: Mapping[str, int],
    now: float,
) -> Sizing:
    """Decide the replicas of every revision that serves or is about to."""
    total = total_arrivals(status, metrics)
    rolling = status.rollout is not None and status.rollout.stage is not Stage.FINISHED
    entries: list[VersionStatus] = []
    decisions: list[ScalingDecision] = []
    state = ScalingState(False, "NotStarted", "no version has pods yet")
    for entry in status.versions:
        match entry.role:
            case Role.PREVIOUS | Role.RETIRING:
                entries.append(entry)
                continue
            case Role.STABLE | Role.CANDIDATE:
                pass
        minimum = _minimum(spec, status, entry, now)
        result = decide_scaling(
            ScalingRequest(
                autoscaling=spec.autoscaling,
                spec_replicas=spec.replicas,
                entry=entry,
                view=observed.of(entry.revision),
                metrics=metrics.of(entry.revision),
                total_arrivals=total,
                share=_share(entry),
                floor=floors.get(entry.revision, 0),
                minimum=minimum.replicas,
                minimum_from=minimum.source,
                hold_down="RolloutInProgress" if rolling else "",
                now=now,
            )
        )
        entries.append(result.entry.model_copy(update={"replicas": result.replicas}))
        if result.decision is not None:
            decisions.append(result.decision)
        if entry.role is Role.STABLE or len(status.versions) == 1:
            state = ScalingState(result.active, result.reason, result.message)
    ring = (*status.scaling, *decisions)[-DECISIONS:]
    return Sizing(
        status=status.model_copy(update={"versions": tuple(entries), "scaling": ring}),
        events=tuple(_event(decision) for decision in decisions),
        state=state,
    )


def _share(entry: VersionStatus) -> float:
    """The greater of intended and observed weight: while weights move, both sides are sized for what they may get."""
    observed = entry.weight.observed.number if entry.weight.observed is not None else 0.0
    return max(float(entry.weight.intended), min(observed, 100.0)) / 100


def _minimum(
    spec: ModelDeploymentSpec, status: ModelDeploymentStatus, entry: VersionStatus, now: float
) -> MinimumReplicas:
    first = status.in_role(Role.STABLE) is None
    return minimum_at(spec.autoscaling, now) if entry.role is Role.STABLE or first else MinimumReplicas(1)


def _event(decision: ScalingDecision) -> EventRecord:
    verb = "ScaledUp" if decision.to > decision.from_ else "ScaledDown"
    message = f"{decision.version}: {decision.from_} to {decision.to} replicas: {decision.reason}: {decision.message}"
    return EventRecord(verb, message)
