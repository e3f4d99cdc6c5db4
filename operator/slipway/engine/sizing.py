"""Scaling of all live revisions of one object, and the capacities that the rollout reckons with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slipway.api.autoscaling import Autoscaling, ScalingMode
from slipway.api.events import EventRecord
from slipway.api.observed import Observed
from slipway.api.samples import MetricsView, Quality, Sample
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, ScalingDecision, Stage, VersionStatus
from slipway.rollout import Capacity
from slipway.scaling import MinimumReplicas, ScalingRequest, ScalingResult, known_target, minimum_at
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
        return _at_least(metrics.gateway, Sample(value, quality, worst.at, reason))
    return _at_least(metrics.gateway, Sample(value, Quality.OK, at))


def _at_least(gateway: Sample, servers: Sample) -> Sample:
    """What servers see, or what the mesh sends to them where that is more: requests that found no server, for one.

    While servers say nothing the mesh's count is a lower bound: it may raise the number of replicas, not lower it.
    """
    if not gateway.ok:
        return servers
    if servers.ok:
        return servers if servers.value >= gateway.value else Sample(gateway.value, Quality.OK, servers.at)
    if gateway.value <= 0:
        return servers
    return Sample(max(servers.value, gateway.value), Quality.PARTIAL, gateway.at, servers.reason)


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
            per_replica=known_target(spec.autoscaling, entry, stable),
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
    caps: Mapping[str, int] | None = None,
) -> Sizing:
    """Decide the replicas of every revision that serves or is about to.

    ``floors`` and ``caps`` are what the rollout needs and what it leaves, by revision; they win over load.
    """
    caps = caps or {}
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
            case Role.STABLE | Role.CANDIDATE | Role.EXPERIMENT:
                pass
        minimum = _minimum(spec, status, entry, now)
        floor, cap = floors.get(entry.revision, 0), caps.get(entry.revision, spec.autoscaling.max_replicas)
        capped = entry.revision in caps
        result = decide_scaling(
            ScalingRequest(
                autoscaling=_capped(spec.autoscaling, cap),
                spec_replicas=min(spec.replicas, cap) if capped else spec.replicas,
                entry=entry,
                view=observed.of(entry.revision),
                metrics=metrics.of(entry.revision),
                total_arrivals=total,
                share=_share(entry),
                floor=min(floor, cap) if capped else floor,
                minimum=min(minimum.replicas, cap) if capped else minimum.replicas,
                minimum_from=minimum.source,
                hold_down="RolloutInProgress" if rolling and floor < cap else "",
                now=now,
            )
        )
        if capped and result.replicas >= cap:
            result = _set_by_rollout(result)
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


def _capped(autoscaling: Autoscaling, cap: int) -> Autoscaling:
    if cap >= autoscaling.max_replicas:
        return autoscaling
    return autoscaling.model_copy(update={"max_replicas": cap})


def _set_by_rollout(result: ScalingResult) -> ScalingResult:
    """The same number with the reason that it really has."""
    reason, message = "SetByRollout", "the rollout leaves it no more pods for now"
    decision = result.decision
    if decision is not None:
        decision = decision.model_copy(update={"reason": reason, "signal": "rollout", "message": message})
    return replace(result, decision=decision, active=False, reason=reason, signal="rollout", message=message)


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
