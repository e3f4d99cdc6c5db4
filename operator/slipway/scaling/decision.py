"""The scaling decision of one revision."""

from dataclasses import replace
from typing import assert_never

from slipway.api.autoscaling import ScalingMode, ScalingStrategy
from slipway.api.status import DemandTrend, Role, ScalingDecision, VersionStatus
from slipway.api.timestamps import format_time
from slipway.scaling.capacity import whole
from slipway.scaling.coverage import covered, gpu_measured
from slipway.scaling.demand import demand_of
from slipway.scaling.fleet import fleet_of
from slipway.scaling.learning import learned_capacity, with_learned_target
from slipway.scaling.limits import Bounds, Step, begins_anew, step
from slipway.scaling.reasons import ScalingReason
from slipway.scaling.request import ScalingRequest, ScalingResult
from slipway.scaling.signals import told_signals, without_lost
from slipway.scaling.starts import learned, slow_start, with_gpu_hours
from slipway.scaling.target import propose_target
from slipway.scaling.threshold import propose_threshold

__all__ = ["decide"]


def decide(request: ScalingRequest) -> ScalingResult:
    """Decide how many replicas a revision has.

    The result depends on the request alone: what a decision must remember is in ``entry``, so a restarted operator
    decides the same. Bounds always hold (``minimum`` and ``floor`` below, maxReplicas above both); in the modes
    External and None the user's ``spec.replicas`` takes the place of bounds for stable.
    """
    cold_start = learned(request.entry.cold_start, request.view)
    entry = request.entry.model_copy(update={"cold_start": cold_start, "floor": 0})
    if request.view.scaler:
        return _by_scaler(request, entry, ScalingReason.SCALER_CONFLICT, f"{request.view.scaler} sets the replicas")
    match request.autoscaling.mode:
        case ScalingMode.OPERATOR:
            return _by_load(request, entry)
        case ScalingMode.HPA:
            return _by_scaler(request, entry, ScalingReason.SET_BY_HPA, "the HorizontalPodAutoscaler decides")
        case ScalingMode.EXTERNAL:
            return _by_user(request, entry, ScalingReason.SET_EXTERNALLY)
        case ScalingMode.NONE:
            return _by_user(request, entry, ScalingReason.SCALING_OFF)
    assert_never(request.autoscaling.mode)


def _by_load(request: ScalingRequest, entry: VersionStatus) -> ScalingResult:
    signals = told_signals(request)
    request = with_learned_target(without_lost(covered(request)))
    slow = slow_start(entry.cold_start)
    fleet = fleet_of(request.view, entry.replicas, slow, request.now)
    demand = demand_of(request, slow)
    capacity = learned_capacity(request, fleet)
    match request.autoscaling.strategy:
        case ScalingStrategy.TARGET:
            proposal = propose_target(request, fleet, demand)
        case ScalingStrategy.THRESHOLD:
            proposal = propose_threshold(request, fleet, demand)
    chosen = step(request, fleet, proposal, slow)
    entry = entry.model_copy(
        update={
            "plans": chosen.plans,
            "trend": demand.trend,
            "capacity": capacity,
            "gpu_exported": gpu_measured(request),
            "signals": signals,
        }
    )
    if begins_anew(request, fleet):
        entry = entry.model_copy(update={"scaled_at": format_time(request.now)})
    if request.autoscaling.dry_run:
        return _dry_run(request, entry, chosen, active=proposal.active)
    return _finished(request, entry.model_copy(update={"proposed": None}), chosen, active=proposal.active)


def _by_user(request: ScalingRequest, entry: VersionStatus, reason: ScalingReason) -> ScalingResult:
    """``spec.replicas`` for stable; a candidate gets its share of them, and what the rollout needs."""
    if entry.role is Role.STABLE:
        goal = max(request.spec_replicas, request.floor)
    else:
        goal = max(whole(request.share * request.spec_replicas), request.floor, request.minimum)
    message = f"spec.replicas is {request.spec_replicas}"
    chosen = Step(goal, reason, "spec.replicas", message, message)
    if goal < entry.replicas and request.hold_down:
        detail = f"{message}, but nothing is removed now"
        chosen = Step(entry.replicas, request.hold_down, "spec.replicas", detail, detail)
    entry = entry.model_copy(update={"plans": (), "trend": DemandTrend(), "proposed": None})
    return _finished(request, entry, chosen, active=False)


def _by_scaler(request: ScalingRequest, entry: VersionStatus, reason: ScalingReason, message: str) -> ScalingResult:
    """Follow what a scaler has written; our own one is raised to what minimum and rollout need, another's is not."""
    bounds = Bounds.of(request)
    live = request.view.replicas if request.view.exists else max(entry.replicas, bounds.lower)
    own = reason is ScalingReason.SET_BY_HPA
    goal = min(max(live, bounds.lower), bounds.upper) if own else live
    entry = entry.model_copy(
        update={"plans": (), "trend": DemandTrend(), "proposed": None, "floor": bounds.lower if own else 0}
    )
    chosen = Step(goal, reason, "scaler", message, message)
    return _finished(request, entry, chosen, active=own)


def _dry_run(request: ScalingRequest, entry: VersionStatus, chosen: Step, *, active: bool) -> ScalingResult:
    """Keep the present number within its bounds, and tell what would have been chosen, once for each proposal."""
    bounds = Bounds.of(request)
    kept = min(max(entry.replicas, bounds.lower), bounds.upper)
    if kept != entry.replicas:
        return _finished(request, entry, replace(chosen, replicas=kept), active=active)
    news = chosen.replicas not in (entry.replicas, entry.proposed)
    entry = with_gpu_hours(entry, request.view, request.now, due=False)
    entry = entry.model_copy(update={"proposed": chosen.replicas})
    decision = _decision(request, chosen, f"dry run: {chosen.message}") if news else None
    return ScalingResult(kept, entry, decision, active, str(chosen.reason), chosen.signal, _told(chosen))


def _finished(request: ScalingRequest, entry: VersionStatus, chosen: Step, *, active: bool) -> ScalingResult:
    changed = chosen.replicas != entry.replicas
    entry = with_gpu_hours(entry, request.view, request.now, due=changed)
    if not changed:
        return ScalingResult(entry.replicas, entry, None, active, str(chosen.reason), chosen.signal, _told(chosen))
    decision = _decision(request, chosen, chosen.message)
    entry = entry.model_copy(
        update={"replicas": chosen.replicas, "scaled_at": format_time(request.now), "plans": chosen.plans}
    )
    return ScalingResult(chosen.replicas, entry, decision, active, str(chosen.reason), chosen.signal, _told(chosen))


def _told(chosen: Step) -> str:
    """Why, in words that stay the same while nothing changes: they end in a condition."""
    meaning = chosen.reason.meaning if isinstance(chosen.reason, ScalingReason) else ""
    return f"{meaning} {chosen.detail}".strip()


def _decision(request: ScalingRequest, chosen: Step, message: str) -> ScalingDecision:
    return ScalingDecision(
        at=format_time(request.now),
        version=request.entry.name,
        from_=request.entry.replicas,
        to=chosen.replicas,
        reason=str(chosen.reason),
        signal=chosen.signal,
        message=message,
    )
