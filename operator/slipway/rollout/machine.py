"""One decision about a rollout: look, answer actions, set the course, take the step that the snapshot allows."""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.api.events import EventRecord
from slipway.api.judgement import NO_JUDGEMENT, Judgement
from slipway.api.observed import Observed
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import (
    ModelDeploymentStatus,
    Outcome,
    Role,
    RolloutStatus,
    Stage,
    VersionStatus,
)
from slipway.api.timestamps import format_time
from slipway.rollout.actions import RETRYABLE, answer
from slipway.rollout.capacity import Capacity
from slipway.rollout.draft import Draft
from slipway.rollout.recovery import recover
from slipway.rollout.retirement import retire
from slipway.rollout.split import apply_standing
from slipway.rollout.stages import StageContext, confirm, run_stage

__all__ = ["RolloutDecision", "RolloutRequest", "Target", "advance"]

ACTIVE_REQUEUE = 1.0
"""Seconds between looks at a rollout in progress; events and metrics wake it earlier."""


@dataclass(frozen=True, slots=True)
class Target:
    """The revision that the spec serves."""

    version: str
    revision: str


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Everything a rollout decision looks at."""

    spec: ModelDeploymentSpec
    status: ModelDeploymentStatus
    observed: Observed
    target: Target
    capacity: Mapping[str, Capacity]
    """By revision; a revision without one is sized by stable's replicas."""
    now: float
    judgement: Judgement = NO_JUDGEMENT
    """What the evidence says of the present candidate."""
    breaker: Judgement | None = None
    """A hard breaker that tripped on the present candidate."""


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """The status as the rollout wants it, and what goes with it."""

    status: ModelDeploymentStatus
    events: tuple[EventRecord, ...]
    floors: Mapping[str, int]
    """Replicas that the rollout needs per revision, whatever the load."""
    requeue_after: float | None
    """Seconds until the next look, if nothing happens before."""


def advance(request: RolloutRequest) -> RolloutDecision:
    """Decide the next step of a rollout; the same request always gives the same decision."""
    draft = Draft.of(request.status, request.now)
    settle = request.spec.traffic.settle.seconds
    recover(
        draft,
        request.observed,
        request.target.revision,
        tuple(step.weight for step in request.spec.rollout.steps),
        settle,
    )
    _look(draft, request.observed)
    last_action = answer(draft, request.status, request.target.revision)
    _steer(draft, request.target)
    confirm(draft, settle)
    if draft.active:
        context = StageContext(
            draft=draft,
            spec=request.spec,
            observed=request.observed,
            capacity=request.capacity,
            judgement=request.judgement,
            breaker=request.breaker,
        )
        run_stage(context)
    if not draft.active:
        apply_standing(draft, settle)
    retire(draft, request.observed, settle)
    status = request.status.model_copy(
        update={
            "versions": tuple(draft.entries.values()),
            "rollout": draft.rollout,
            "history": tuple(draft.history),
            "rollouts": draft.rollouts,
            "last_action": last_action,
        }
    )
    return RolloutDecision(
        status=status,
        events=tuple(draft.events),
        floors=dict(draft.floors),
        requeue_after=_requeue(draft),
    )


def _look(draft: Draft, observed: Observed) -> None:
    """Bring the entries up to what is observed: ready pods, applied weights, subsets, checks."""
    now = format_time(draft.now)
    for entry in tuple(draft.entries.values()):
        view = observed.of(entry.revision)
        verified = entry.verified
        if view.probe.passed is not None:
            verified = "Passed" if view.probe.passed else "Failed"
        agrees = (entry.revision in observed.traffic.subsets) == entry.subset
        draft.update(
            entry.revision,
            ready_replicas=view.ready,
            verified=verified,
            loaded_digest=view.probe.loaded_digest or entry.loaded_digest,
            subset_at=(entry.subset_at or now) if agrees else "",
            weight=entry.weight.model_copy(update={"applied": observed.traffic.weights.get(entry.revision, 0)}),
        )


def _steer(draft: Draft, target: Target) -> None:
    """Begin, supersede or revert a rollout when the served revision has changed."""
    stable = draft.in_role(Role.STABLE)
    rollout = draft.rollout
    if draft.active and rollout is not None and rollout.outcome is None and rollout.to_revision != target.revision:
        _leave(draft, rollout, stable, target)
        stable = draft.in_role(Role.STABLE)
    if draft.active or (stable is not None and stable.revision == target.revision):
        return
    rollout = draft.rollout
    if rollout is not None and rollout.to_revision == target.revision and rollout.outcome in RETRYABLE:
        return
    _begin(draft, target, stable)


def _leave(draft: Draft, rollout: RolloutStatus, stable: VersionStatus | None, target: Target) -> None:
    """The spec no longer serves the candidate: its weight goes back first, whatever comes next."""
    candidate = draft.entries.get(rollout.to_revision)
    if stable is None:
        _leave_first(draft, rollout, candidate)
        return
    reverted = target.revision == stable.revision
    outcome = Outcome.REVERTED if reverted else Outcome.SUPERSEDED
    message = f"spec serves {target.version} again" if reverted else f"superseded by {target.version}"
    draft.enter(Stage.RETURNING, outcome.value, message, outcome=outcome, by="spec")
    draft.emit(f"Rollout{outcome.value}", f"rollout of {rollout.to} ends: {message}")


def _leave_first(draft: Draft, rollout: RolloutStatus, candidate: VersionStatus | None) -> None:
    """Without a stable version a first candidate that serves becomes it; one that never served just goes."""
    if candidate is not None and candidate.weight.intended > 0:
        draft.update(candidate.revision, role=Role.STABLE)
        draft.set_rollout(outcome=Outcome.PROMOTED, reason="Promoted", message="it serves all traffic")
    else:
        if candidate is not None:
            draft.update(candidate.revision, role=Role.RETIRING, retire_at=format_time(draft.now))
        draft.set_rollout(outcome=Outcome.SUPERSEDED, reason="Superseded", message=f"{rollout.to} never became ready")
    draft.finish()


def _begin(draft: Draft, target: Target, stable: VersionStatus | None) -> None:
    now = format_time(draft.now)
    entry = draft.entries.get(target.revision)
    warm = entry is not None and entry.role is Role.PREVIOUS
    if entry is None:
        entry = VersionStatus(name=target.version, revision=target.revision, subset_at=now)
        draft.entries[target.revision] = entry
    draft.update(
        target.revision,
        role=Role.CANDIDATE,
        verified=entry.verified if warm else "",
        retire_at="",
        reason="",
        message="",
    )
    draft.rollouts += 1
    draft.rollout = RolloutStatus(
        id=f"r-{draft.rollouts:06d}",
        from_=stable.name if stable else "",
        to=target.version,
        from_revision=stable.revision if stable else "",
        to_revision=target.revision,
        stage=Stage.STARTING,
        stage_at=now,
        started_at=now,
        reference=max(1, stable.replicas) if stable else 1,
        full=warm,
        by="spec",
        reason="Starting",
        message="",
    )
    if stable is None:
        draft.emit("FirstDeployment", f"{target.version} starts; it gets all traffic once it is ready")
    elif warm:
        draft.emit("RollbackStarted", f"back from {stable.name} to {target.version}, which is still warm")
    else:
        draft.emit("RolloutStarted", f"rollout of {target.version} begins beside {stable.name}")


def _requeue(draft: Draft) -> float | None:
    if draft.active or any(entry.role is Role.RETIRING for entry in draft.entries.values()):
        return ACTIVE_REQUEUE
    waits = [-draft.since(entry.retire_at) for entry in draft.entries.values() if entry.retire_at]
    return max(ACTIVE_REQUEUE, min(waits)) if waits else None
