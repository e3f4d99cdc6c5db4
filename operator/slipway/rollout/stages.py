"""What each stage of a rollout waits for and does. One function per stage; each may enter the next one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from slipway.api.judgement import Judgement
from slipway.api.observed import Observed, RevisionView
from slipway.api.rollout import OnHarm, OnInconclusive, Promotion, Step
from slipway.api.scalars import format_duration
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import Outcome, Role, RolloutStatus, Stage, Verdict, VersionStatus
from slipway.api.timestamps import format_time, parse_time
from slipway.rollout.capacity import Capacity
from slipway.rollout.draft import Draft
from slipway.rollout.split import apply_split, share_of
from slipway.rollout.startup import startup_failure, startup_message
from slipway.rollout.weights import going_back, moving_up

__all__ = ["StageContext", "confirm", "run_stage"]

MAX_TRANSITIONS = 8
"""More than any chain of stages that one snapshot can allow; a guard against a cycle."""


@dataclass(frozen=True)
class StageContext:
    """A draft in progress with everything its stages look at."""

    draft: Draft
    spec: ModelDeploymentSpec
    observed: Observed
    capacity: Mapping[str, Capacity]
    judgement: Judgement
    breaker: Judgement | None

    @property
    def rollout(self) -> RolloutStatus:
        """The rollout as it stands in the draft."""
        return self.draft.set_rollout()

    @property
    def candidate(self) -> VersionStatus | None:
        """The candidate's entry."""
        return self.draft.entries.get(self.rollout.to_revision)

    @property
    def stable(self) -> VersionStatus | None:
        """Stable's entry; none before the first version serves."""
        return self.draft.in_role(Role.STABLE)

    @property
    def settle(self) -> float:
        """Seconds that the mesh is given to converge."""
        return self.spec.traffic.settle.seconds

    @property
    def step(self) -> Step:
        """The present step; the last one when the user has shortened the list."""
        steps = self.spec.rollout.steps
        return steps[min(max(self.rollout.step, 1), len(steps)) - 1]

    @property
    def deadline(self) -> float:
        """When the present wait is given up, in seconds since the epoch."""
        begun = parse_time(self.rollout.stage_at)
        return (self.draft.now if begun is None else begun) + self.spec.rollout.progress_deadline.seconds

    def sized(self, revision: str) -> Capacity:
        """The capacity of a revision; by stable's replicas where none was measured."""
        return self.capacity.get(revision) or Capacity(
            None, None, self.rollout.reference, self.spec.autoscaling.max_replicas
        )

    def view(self, entry: VersionStatus) -> RevisionView:
        """What is observed of an entry."""
        return self.observed.of(entry.revision)


def confirm(draft: Draft, settle: float) -> None:
    """Note when the intended weights were read back from the router, and when they had settled after that.

    Evidence counts from the first weight that is confirmed: a request sent before could have met an older split.
    """
    if not draft.active or draft.rollout is None or not draft.rollout.weight_written_at:
        return
    rollout = draft.rollout
    if any(entry.weight.applied != entry.weight.intended for entry in draft.entries.values()):
        draft.set_rollout(weight_seen_at="")
        return
    now = format_time(draft.now)
    seen_at = rollout.weight_seen_at or now
    draft.set_rollout(weight_seen_at=seen_at)
    if draft.since(seen_at) < settle:
        return
    candidate = draft.entries.get(rollout.to_revision)
    has_weight = candidate is not None and candidate.weight.intended > 0
    draft.set_rollout(
        weight_applied_at=rollout.weight_applied_at or now,
        evidence_from=rollout.evidence_from or (now if has_weight else ""),
    )


def run_stage(context: StageContext) -> None:
    """Run stages until one waits."""
    for _ in range(MAX_TRANSITIONS):
        before = context.rollout
        _check_harm(context)
        stage = context.rollout.stage
        if context.candidate is None and stage is not Stage.FINISHED:
            context.draft.set_rollout(outcome=context.rollout.outcome or Outcome.FAILED)
            context.draft.finish("the candidate's revision is gone")
            return
        _keep_stable(context)
        _STAGES[stage](context)
        after = context.draft.rollout
        if after is None or (after.stage, after.step) == (before.stage, before.step):
            return


def _keep_stable(context: StageContext) -> None:
    """Stable keeps its replicas until the last step is confirmed."""
    stable = context.stable
    if stable is not None:
        context.draft.floors[stable.revision] = stable.replicas


def _check_harm(context: StageContext) -> None:
    """Harm takes effect in the reconcile that finds it, in whatever stage the rollout is."""
    rollout, stable = context.rollout, context.stable
    if rollout.outcome is not None or stable is None or rollout.stage is Stage.FINISHED:
        return
    if context.breaker is not None:
        _roll_back(context, context.breaker)
        return
    candidate = context.candidate
    exposed = candidate is not None and candidate.weight.intended > 0
    if not exposed or context.judgement.verdict is not Verdict.HARMFUL:
        return
    if rollout.full and rollout.harm_at:
        return
    match context.spec.rollout.analysis.on_harm:
        case OnHarm.ROLLBACK | OnHarm.STEP_DOWN:
            _roll_back(context, context.judgement)
        case OnHarm.PAUSE:
            if not rollout.harm_at:
                context.draft.set_rollout(paused=True, harm_at=format_time(context.draft.now), by="analysis")
                context.draft.emit("HarmDetected", context.judgement.message, warning=True)
        case unreachable:
            assert_never(unreachable)


def _roll_back(context: StageContext, judgement: Judgement) -> None:
    draft = context.draft
    rollout = context.rollout
    exposed = rollout.weight_written_at != ""
    outcome = Outcome.ROLLED_BACK if exposed else Outcome.FAILED
    draft.enter(
        Stage.RETURNING,
        judgement.reason,
        judgement.message,
        outcome=outcome,
        by="analysis",
        harm_at=rollout.harm_at or format_time(draft.now),
    )
    draft.emit("HarmDetected", f"{rollout.to}: {judgement.reason}: {judgement.message}", warning=True)


def _fail(context: StageContext, reason: str, message: str) -> None:
    """Give the rollout up. Without a stable version there is nothing to go back to: it waits, and says why."""
    if context.stable is None:
        context.draft.wait(reason, message, context.deadline)
        return
    context.draft.enter(Stage.RETURNING, reason, message, outcome=Outcome.FAILED, by="operator")
    context.draft.emit("RolloutFailed", f"{context.rollout.to}: {reason}: {message}", warning=True)


def _goal(context: StageContext) -> int:
    """The weight that the rollout is on its way to."""
    rollout = context.rollout
    if context.stable is None or rollout.full or rollout.stage is Stage.PROMOTING:
        return 100
    return context.step.weight


def _starting(context: StageContext) -> None:
    """Capacity ready, warm and verified before anything of the candidate is known to the router."""
    draft, candidate = context.draft, context.candidate
    if candidate is None:
        return
    draft.set_rollout(steps=len(context.spec.rollout.steps))
    view = context.view(candidate)
    wanted = context.sized(candidate.revision).replicas_for(_goal(context))
    draft.floors[candidate.revision] = wanted
    needed = 1 if context.stable is None or context.rollout.full else wanted
    failure = startup_failure(view)
    if candidate.verified == "Failed":
        failure = (view.probe.reason or "VerificationFailed", view.probe.message)
    if failure is not None:
        draft.update(candidate.revision, reason=failure[0], message=failure[1])
        _fail(context, *failure)
        return
    if candidate.ready_replicas >= needed and candidate.verified == "Passed":
        draft.update(candidate.revision, reason="", message="")
        draft.enter(Stage.EXPOSING, "Exposing", f"{candidate.name} is ready; its subset is written")
        return
    reason, message = startup_message(candidate, view, needed)
    draft.update(candidate.revision, reason=reason, message=message)
    _wait_or_fail(context, reason, message)


def _exposing(context: StageContext) -> None:
    """Rule before route: the subset must be known everywhere before any weight names it."""
    draft, candidate = context.draft, context.candidate
    if candidate is None:
        return
    _floor_candidate(context, candidate)
    if not candidate.subset:
        candidate = draft.update(candidate.revision, subset=True, subset_at="")
    if not share_of(draft, candidate, context.settle).exposed:
        _wait_or_fail(context, "SubsetSettling", f"the router learns the subset of {candidate.name}")
        return
    if context.stable is None or context.rollout.full:
        draft.enter(Stage.PROMOTING, "Promoting", f"all traffic goes to {candidate.name}")
        return
    draft.enter(Stage.SHIFTING, "Shifting", f"{candidate.name} gets its first weight", step=1)


def _shifting(context: StageContext) -> None:
    """Move towards the step's weight as far as ready capacity allows; then wait until the router confirms it."""
    if context.rollout.full:
        context.draft.enter(Stage.PROMOTING, "Promoting", f"the remaining steps of {context.rollout.to} are skipped")
        return
    if _shift(context):
        draft = context.draft
        draft.enter(
            Stage.OBSERVING,
            "Observing",
            f"{context.rollout.to} has its weight of {_goal(context)} %",
            step_started_at=format_time(draft.now),
        )
        draft.emit(
            "StepReached", f"step {context.rollout.step} of {context.rollout.steps}: {_goal(context)} % confirmed"
        )


def _promoting(context: StageContext) -> None:
    """The candidate is sized for all traffic, gets it, and becomes stable when that is confirmed."""
    if not _shift(context):
        return
    draft, rollout = context.draft, context.rollout
    stable = context.stable
    if stable is not None:
        keep = context.spec.rollout.keep_previous.seconds
        draft.update(stable.revision, role=Role.PREVIOUS, retire_at=format_time(draft.now + keep))
    draft.update(rollout.to_revision, role=Role.STABLE, reason="", message="")
    draft.set_rollout(outcome=Outcome.PROMOTED, reason="Promoted", message=f"{rollout.to} serves all traffic")
    draft.finish(context.judgement.message if stable is not None else "first deployment")
    draft.emit("Promoted", f"{rollout.to} serves all traffic")


def _shift(context: StageContext) -> bool:
    """Set the weights that capacity allows; True once the goal is intended, read back and settled."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None:
        return False
    goal = _goal(context)
    _floor_candidate(context, candidate)
    share = share_of(draft, candidate, context.settle)
    if stable is None:
        changed = apply_split(draft, {candidate.revision: 100})
        weight = 100
    else:
        other = share_of(draft, stable, context.settle)
        weights = dict(moving_up(other, share, goal, context.sized(candidate.revision)))
        weight = weights[candidate.revision]
        if context.rollout.paused and weight > share.weight and other.ready > 0:
            weight = share.weight
            weights = {stable.revision: 100 - weight, candidate.revision: weight}
        changed = apply_split(draft, weights)
    if changed:
        draft.set_rollout(stage_at=format_time(draft.now))
    if context.rollout.paused and stable is not None:
        draft.wait("Paused", f"paused by {context.rollout.by or 'unknown'}", _pause_deadline(context))
        return False
    if weight != goal:
        need = context.sized(candidate.revision).replicas_for(goal)
        message = f"{share.ready} of {need} replicas of {candidate.name} are ready for {goal} %"
        _wait_or_fail(context, "WaitingForCapacity", message)
        return False
    if not context.rollout.weight_applied_at:
        _wait_or_fail(context, "WaitingForMesh", f"the router takes up {goal} % for {candidate.name}")
        return False
    return True


def _observing(context: StageContext) -> None:
    """At a confirmed weight: hold, then advance on evidence, on approval, or not at all."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None or stable is None:
        return
    rollout, step = context.rollout, context.step
    _floor_candidate(context, candidate)
    share, other = (share_of(draft, entry, context.settle) for entry in (candidate, stable))
    weights = moving_up(other, share, step.weight, context.sized(candidate.revision))
    weight = weights[candidate.revision]
    if weight < share.weight or (weight > share.weight and not rollout.paused):
        draft.enter(Stage.SHIFTING, "Shifting", f"the weight of {candidate.name} follows its ready replicas")
        return
    if rollout.full:
        draft.enter(Stage.PROMOTING, "Promoting", f"the remaining steps of {rollout.to} are skipped")
        return
    if rollout.paused:
        draft.wait("Paused", f"paused by {rollout.by or 'unknown'}", _pause_deadline(context))
        return
    if not rollout.approved and not _earned(context):
        return
    if rollout.step < len(context.spec.rollout.steps):
        draft.enter(Stage.SHIFTING, "Shifting", "the next weight", step=rollout.step + 1, approved=False)
    else:
        draft.enter(Stage.PROMOTING, "Promoting", f"all traffic goes to {rollout.to}", approved=False)


def _earned(context: StageContext) -> bool:
    """Whether the step is done without anybody's approval; says what it waits for otherwise."""
    draft, rollout, step = context.draft, context.rollout, context.step
    if step.pause is not None:
        draft.wait("AwaitingPromotion", f"step {rollout.step} waits for a Promote action", _pause_deadline(context))
        return False
    held = draft.since(rollout.step_started_at)
    if held < step.hold.seconds:
        until = (parse_time(rollout.step_started_at) or draft.now) + step.hold.seconds
        draft.wait("Holding", f"{step.weight} % is held for {step.hold}", until)
        return False
    if context.judgement.verdict is not Verdict.SAFE and not _inconclusive_passes(context):
        return False
    last = rollout.step >= len(context.spec.rollout.steps)
    if last and context.spec.rollout.promotion is Promotion.MANUAL:
        approved = context.spec.rollout.approved_version == rollout.to
        if not approved:
            message = f"promotion waits for a Promote action or rollout.approvedVersion: {rollout.to}"
            draft.wait("AwaitingPromotion", message, _pause_deadline(context))
        return approved
    return True


def _inconclusive_passes(context: StageContext) -> bool:
    """Undecided evidence never promotes by itself; after maxDuration the user's policy decides."""
    draft, rollout, analysis = context.draft, context.rollout, context.spec.rollout.analysis
    begun = parse_time(rollout.evidence_from)
    deadline = (draft.now if begun is None else begun) + analysis.max_duration.seconds
    if draft.now < deadline:
        draft.wait(context.judgement.reason, context.judgement.message, deadline)
        return False
    waited = format_duration(analysis.max_duration.seconds)
    match analysis.on_inconclusive:
        case OnInconclusive.PROMOTE:
            return True
        case OnInconclusive.ROLLBACK:
            message = f"no verdict within {waited}: {context.judgement.message}"
            _roll_back(context, Judgement(Verdict.UNDECIDED, "Inconclusive", message))
            return False
        case OnInconclusive.HOLD:
            draft.wait("Inconclusive", f"no verdict within {waited}: {context.judgement.message}", deadline)
            return False
        case unreachable:
            assert_never(unreachable)


def _returning(context: StageContext) -> None:
    """Traffic goes back as fast as stable's ready replicas allow; the candidate never gains any."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None or stable is None:
        return
    rollout = context.rollout
    capacity = context.sized(stable.revision)
    draft.floors[stable.revision] = max(stable.replicas, capacity.replicas_for(100))
    draft.floors[candidate.revision] = candidate.replicas
    share, other = (share_of(draft, entry, context.settle) for entry in (candidate, stable))
    changed = apply_split(draft, going_back(other, share, capacity))
    weight = draft.entries[candidate.revision].weight.intended
    if weight > 0:
        draft.set_rollout(deadline=format_time(context.deadline))
        return
    confirmed = rollout.weight_applied_at if not changed else ""
    if rollout.weight_written_at and not confirmed:
        draft.set_rollout(deadline=format_time(context.deadline))
        return
    draft.update(candidate.revision, role=Role.RETIRING, retire_at=format_time(draft.now + context.settle))
    draft.finish()
    outcome = context.rollout.outcome or Outcome.FAILED
    draft.emit(f"Rollout{outcome.value}", f"{stable.name} has all traffic; {candidate.name} goes", warning=True)


def _finished(context: StageContext) -> None:
    """Nothing is left to do."""


def _floor_candidate(context: StageContext, candidate: VersionStatus) -> None:
    """A candidate is sized for the weight it is on the way to, and never below what it has."""
    goal = max(_goal(context), candidate.weight.intended)
    context.draft.floors[candidate.revision] = context.sized(candidate.revision).replicas_for(goal)


def _wait_or_fail(context: StageContext, reason: str, message: str) -> None:
    deadline = context.deadline
    if context.draft.now >= deadline:
        waited = format_duration(context.spec.rollout.progress_deadline.seconds)
        _fail(context, "ProgressDeadlineExceeded", f"{reason} for {waited}: {message}")
        return
    context.draft.wait(reason, message, deadline)


def _pause_deadline(context: StageContext) -> float:
    """A pause has a deadline as well: past it the object counts as stalled, nothing else happens."""
    begun = parse_time(context.rollout.step_started_at) or parse_time(context.rollout.stage_at)
    return (context.draft.now if begun is None else begun) + context.spec.rollout.analysis.max_duration.seconds


_STAGES: Mapping[Stage, Callable[[StageContext], None]] = {
    Stage.STARTING: _starting,
    Stage.EXPOSING: _exposing,
    Stage.SHIFTING: _shifting,
    Stage.OBSERVING: _observing,
    Stage.PROMOTING: _promoting,
    Stage.RETURNING: _returning,
    Stage.FINISHED: _finished,
}
