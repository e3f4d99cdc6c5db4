"""One decision about a rollout: look, answer actions, set the course, take the step that the snapshot allows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from slipway.api.events import EventRecord
from slipway.api.judgement import NO_JUDGEMENT, Judgement
from slipway.api.observed import Observed
from slipway.api.rollout import Strategy
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import (
    LastAction,
    ModelDeploymentStatus,
    Outcome,
    Role,
    RolloutStatus,
    Stage,
    VersionStatus,
)
from slipway.api.timestamps import format_time
from slipway.rollout.actions import MEMORY, RETRYABLE, answer
from slipway.rollout.capacity import Capacity
from slipway.rollout.context import StageContext
from slipway.rollout.draft import Draft
from slipway.rollout.experiments import ExperimentTarget, keep_experiments
from slipway.rollout.recovery import recover
from slipway.rollout.retirement import LONGEST_WAIT_FOR_SILENCE, retire
from slipway.rollout.split import apply_standing, make_room
from slipway.rollout.stages import confirm, run_stage
from slipway.rollout.surge import Surge
from slipway.rollout.swap import hold_back

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
    experiments: tuple[ExperimentTarget, ...] = ()
    """The revisions that the spec's experiments ask for."""
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs of one pod, by revision; a revision without one uses none."""
    asked: Collection[str] = ()
    """Revisions on their way out that still get requests, as far as anybody counts them."""

    def sized(self, revision: str) -> Capacity:
        """The capacity of a revision; by one replica where nothing is known of it."""
        return self.capacity.get(revision) or Capacity(None, None, 1, self.spec.autoscaling.max_replicas)


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """The status as the rollout wants it, and what goes with it."""

    status: ModelDeploymentStatus
    events: tuple[EventRecord, ...]
    floors: Mapping[str, int]
    """Replicas that the rollout needs per revision, whatever the load."""
    caps: Mapping[str, int]
    """Most replicas that the rollout leaves to a revision, whatever the load."""
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
        [experiment.revision for experiment in request.experiments],
    )
    _look(draft, request.observed)
    last_action = answer(draft, request.status, request.target.revision)
    _steer(draft, request)
    keep_experiments(draft, request.experiments, request.observed, request.sized, settle)
    if draft.active:
        make_room(draft, settle)
    surge = _surge(draft, request)
    confirm(draft, settle)
    if draft.active:
        context = StageContext(
            draft=draft,
            spec=request.spec,
            observed=request.observed,
            capacity=request.capacity,
            judgement=request.judgement,
            breaker=request.breaker,
            surge=surge,
            step_downs=_known_step_downs(request.status),
        )
        run_stage(context)
        # What the router holds already, such as all weight on a first version, has been seen with its writing.
        confirm(draft, settle)
    if not draft.active:
        apply_standing(draft, settle)
        if surge is not None:
            hold_back(draft, surge, request.observed)
    patience = min(request.spec.rollout.progress_deadline.seconds, LONGEST_WAIT_FOR_SILENCE)
    retire(draft, request.observed, settle, request.asked, patience)
    status = request.status.model_copy(
        update={
            "versions": tuple(draft.entries.values()),
            "rollout": draft.rollout,
            "history": tuple(draft.history),
            "rollouts": draft.rollouts,
            "last_action": last_action,
            "answered": _answered(request.status, last_action),
        }
    )
    return RolloutDecision(
        status=status,
        events=tuple(draft.events),
        floors=dict(draft.floors),
        caps=dict(draft.caps),
        requeue_after=_requeue(draft),
    )


def _answered(status: ModelDeploymentStatus, last: LastAction) -> tuple[str, ...]:
    if not last.id or last.id in status.answered:
        return status.answered
    return (*status.answered, last.id)[-MEMORY:]


def _known_step_downs(status: ModelDeploymentStatus) -> int:
    return status.rollout.step_downs if status.rollout is not None else 0


def _surge(draft: Draft, request: RolloutRequest) -> Surge | None:
    """The bound on the rollout's GPUs. What an earlier rollout kept warm has to go: its GPUs are needed."""
    allowed, rollout = request.spec.rollout.max_surge_gpus, draft.rollout
    if allowed < 0 or rollout is None or not rollout.from_revision or request.gpus.get(rollout.to_revision, 0) <= 0:
        return None
    held = 0
    for entry in tuple(draft.entries.values()):
        if entry.role in (Role.PREVIOUS, Role.RETIRING) and entry.revision not in (
            rollout.from_revision, rollout.to_revision,
        ):  # fmt: skip
            pods = max(entry.replicas, len(request.observed.of(entry.revision).pods))
            held += pods * request.gpus.get(entry.revision, 0)
            if entry.role is Role.PREVIOUS and draft.active:
                draft.update(entry.revision, role=Role.RETIRING, retire_at=format_time(draft.now))
    return Surge(
        whole=max(1, rollout.reference),
        stable_gpus=request.gpus.get(rollout.from_revision, 0),
        candidate_gpus=request.gpus[rollout.to_revision],
        allowed=allowed,
        held=held,
    )


def _look(draft: Draft, observed: Observed) -> None:
    """Bring the entries up to what is observed: ready pods, applied weights, subsets, checks."""
    now = format_time(draft.now)
    for entry in tuple(draft.entries.values()):
        view = observed.of(entry.revision)
        verified = entry.verified
        if view.probe.passed is not None:
            verified = "Passed" if view.probe.passed else "Failed"
        applied = observed.traffic.weights.get(entry.revision, 0)
        # What is led to keeps its subset, whatever somebody has written.
        subset = entry.subset or entry.weight.intended > 0 or applied > 0
        agrees = (entry.revision in observed.traffic.subsets) == subset
        draft.update(
            entry.revision,
            subset=subset,
            ready_replicas=view.ready,
            verified=verified,
            loaded_digest=view.probe.loaded_digest or entry.loaded_digest,
            subset_at=(entry.subset_at or now) if agrees else "",
            weight=entry.weight.model_copy(update={"applied": applied}),
        )


def _steer(draft: Draft, request: RolloutRequest) -> None:
    """Begin, supersede or revert a rollout when the served revision has changed."""
    target = request.target
    stable = draft.in_role(Role.STABLE)
    rollout = draft.rollout
    if draft.active and rollout is not None and rollout.outcome is None and rollout.to_revision != target.revision:
        _leave(draft, rollout, stable, target)
        stable = draft.in_role(Role.STABLE)
    if draft.active or (stable is not None and stable.revision == target.revision):
        return
    rollout = draft.rollout
    failed = rollout is not None and rollout.to_revision == target.revision and rollout.outcome in RETRYABLE
    if failed and stable is not None:
        return  # where nothing serves there is nothing to wait for either
    _begin(draft, target, stable, request.spec.rollout.strategy)


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


def _begin(draft: Draft, target: Target, stable: VersionStatus | None, strategy: Strategy) -> None:
    now = format_time(draft.now)
    entry = draft.entries.get(target.revision)
    warm = entry is not None and entry.role is Role.PREVIOUS
    if entry is None:
        entry = VersionStatus(name=target.version, revision=target.revision, subset_at=now)
        draft.entries[target.revision] = entry
    draft.update(
        target.revision,
        role=Role.CANDIDATE,
        verified=entry.verified if warm or entry.role is Role.EXPERIMENT else "",
        matched=False,
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
        # A weight that it has already, as an experiment for one, may need no writing; it has to be confirmed as well.
        weight_written_at=now if entry.weight.intended > 0 else "",
        full=warm,
        strategy=Strategy.CANARY if warm else strategy,
        by="spec",
        reason="Starting",
        message="",
    )
    if stable is None:
        draft.emit("FirstDeployment", f"{target.version} starts; it gets all traffic once it is ready")
    elif warm:
        draft.emit("RollbackStarted", f"back from {stable.name} to {target.version}, which is still warm")
    else:
        draft.emit("RolloutStarted", _begun(target, stable, strategy))


def _begun(target: Target, stable: VersionStatus, strategy: Strategy) -> str:
    match strategy:
        case Strategy.CANARY:
            return f"rollout of {target.version} begins beside {stable.name}"
        case Strategy.BLUE_GREEN | Strategy.SHADOW:
            return f"rollout of {target.version} begins beside {stable.name} ({strategy.value}: no steps, one switch)"
        case Strategy.RECREATE:
            return f"{stable.name} is stopped before {target.version} starts (Recreate: requests fail in between)"
    assert_never(strategy)


def _requeue(draft: Draft) -> float | None:
    if draft.active or draft.moving or any(entry.role is Role.RETIRING for entry in draft.entries.values()):
        return ACTIVE_REQUEUE
    waits = [-draft.since(entry.retire_at) for entry in draft.entries.values() if entry.retire_at]
    return max(ACTIVE_REQUEUE, min(waits)) if waits else None
