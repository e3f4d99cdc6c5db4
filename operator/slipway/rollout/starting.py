"""The stages before any weight: the candidate's pods start and are verified, then the router learns its subset."""

from slipway.api.observed import RevisionView
from slipway.api.rollout import Strategy
from slipway.api.status import Stage, VersionStatus
from slipway.api.timestamps import format_time
from slipway.rollout.context import StageContext, fail, wait_for_mesh, wait_or_fail
from slipway.rollout.split import share_of
from slipway.rollout.startup import startup_failure, startup_message
from slipway.rollout.swap import deadlock, size, swap_of

__all__ = ["exposing", "starting"]


def starting(context: StageContext) -> None:
    """Capacity ready, warm and verified before anything of the candidate is known to the router."""
    draft, candidate = context.draft, context.candidate
    if candidate is None:
        return
    draft.set_rollout(steps=len(context.spec.rollout.steps) if context.strategy is Strategy.CANARY else 0)
    view = context.view(candidate)
    size(context, candidate)
    failure = _failure(candidate, view)
    if failure is not None:
        draft.update(candidate.revision, reason=failure[0], message=failure[1])
        fail(context, *failure)
        return
    needed = _needed(context, candidate)
    if candidate.ready_replicas >= needed and candidate.verified == "Passed":
        draft.update(candidate.revision, reason="", message="")
        draft.enter(Stage.EXPOSING, "Exposing", f"{candidate.name} is ready; its subset is written")
        return
    reason, message = _wait(context, candidate, needed)
    draft.update(candidate.revision, reason=reason, message=message)
    wait_or_fail(context, reason, message)


def _failure(candidate: VersionStatus, view: RevisionView) -> tuple[str, str] | None:
    if candidate.verified == "Failed":
        return view.probe.reason or "VerificationFailed", view.probe.message
    return startup_failure(view)


def _needed(context: StageContext, candidate: VersionStatus) -> int:
    """Ready pods that the first weight waits for."""
    if context.stable is None or context.rollout.full or swap_of(context) is not None:
        return 1
    needed = context.sized(candidate.revision).replicas_for(context.sized_for)
    if context.surge is not None and context.strategy is Strategy.RECREATE:
        return max(1, min(needed, context.surge.most(0)))
    return max(1, needed)


def _wait(context: StageContext, candidate: VersionStatus, needed: int) -> tuple[str, str]:
    """What is waited for: GPUs that can never be free, stable's end, or the candidate's pods."""
    stuck = deadlock(context)
    if stuck:
        return "SurgeDeadlock", stuck
    stable = context.stable
    if stable is not None and context.strategy is Strategy.RECREATE:
        outage = f"requests fail until {candidate.name} is ready (strategy Recreate)"
        if context.present(stable) > 0 and candidate.replicas == 0:
            return "StoppingStable", f"the pods of {stable.name} are stopped first; {outage}"
        reason, message = startup_message(candidate, context.view(candidate), needed)
        return reason, f"{message}; {stable.name} has stopped, {outage}"
    return startup_message(candidate, context.view(candidate), needed)


def exposing(context: StageContext) -> None:
    """Rule before route: the subset must be known everywhere before any weight names it."""
    draft, candidate = context.draft, context.candidate
    if candidate is None:
        return
    size(context, candidate)
    if not candidate.subset:
        candidate = draft.update(candidate.revision, subset=True, subset_at="")
    if not share_of(draft, candidate, context.settle).exposed:
        wait_for_mesh(context, "SubsetSettling", f"the router learns the subset of {candidate.name}")
        return
    if context.stable is None or context.rollout.full or context.strategy is Strategy.RECREATE:
        draft.enter(Stage.PROMOTING, "Promoting", f"all traffic goes to {candidate.name}")
    elif context.strategy is Strategy.CANARY:
        draft.enter(Stage.SHIFTING, "Shifting", f"{candidate.name} gets its first weight", step=1)
    else:
        now = format_time(draft.now)
        compared = now if context.strategy is Strategy.SHADOW else ""
        message = f"{candidate.name} is ready beside {context.stable.name} and has no traffic yet"
        draft.enter(Stage.OBSERVING, "Observing", message, step_started_at=now, evidence_from=compared)
        draft.emit("CandidateReady", message)
