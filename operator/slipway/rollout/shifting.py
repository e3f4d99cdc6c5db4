"""The stages that move weight up: towards a step's weight, and at last to all traffic."""

from slipway.api.rollout import Strategy
from slipway.api.scalars import format_duration
from slipway.api.status import Outcome, Role, Stage, VersionStatus
from slipway.api.timestamps import format_time, parse_time
from slipway.rollout.context import StageContext, wait_for_mesh, wait_or_fail
from slipway.rollout.split import apply_split, share_of
from slipway.rollout.startup import startup_message
from slipway.rollout.swap import size, swap_of, swapped_goal, swapped_weight
from slipway.rollout.weights import Share, moving_up

__all__ = ["promoting", "shifting", "weight_for"]


def shifting(context: StageContext) -> None:
    """Move towards the step's weight as far as ready capacity allows; then wait until the router confirms it."""
    if context.rollout.full:
        context.draft.enter(Stage.PROMOTING, "Promoting", f"the remaining steps of {context.rollout.to} are skipped")
        return
    if not _shift(context):
        return
    draft, candidate = context.draft, context.candidate
    weight = candidate.weight.intended if candidate is not None else context.goal
    draft.enter(
        Stage.OBSERVING,
        "Observing",
        f"{context.rollout.to} has its weight of {weight} %",
        step_started_at=format_time(draft.now),
    )
    draft.emit("StepReached", f"step {context.rollout.step} of {context.rollout.steps}: {weight} % confirmed")


def promoting(context: StageContext) -> None:
    """The candidate is sized for all traffic, gets it, and becomes stable when that is confirmed."""
    if not _shift(context) or not _watched(context):
        return
    draft, rollout = context.draft, context.rollout
    stable = context.stable
    if stable is not None:
        _retire_stable(context, stable)
    draft.update(rollout.to_revision, role=Role.STABLE, reason="", message="")
    draft.set_rollout(outcome=Outcome.PROMOTED, reason="Promoted", message=f"{rollout.to} serves all traffic")
    draft.finish(context.judgement.message if stable is not None else "first deployment")
    draft.emit("Promoted", f"{rollout.to} serves all traffic")


def _retire_stable(context: StageContext, stable: VersionStatus) -> None:
    """The old version stays warm for a while, where it still has its pods and may keep their GPUs."""
    draft = context.draft
    if context.strategy is Strategy.RECREATE or swap_of(context) is not None:
        draft.update(stable.revision, role=Role.RETIRING, retire_at=format_time(draft.now + context.settle))
        return
    keep = context.spec.rollout.keep_previous.seconds
    draft.update(stable.revision, role=Role.PREVIOUS, retire_at=format_time(draft.now + keep))


def _watched(context: StageContext) -> bool:
    """A switch of all traffic is watched by the hard breakers for one interval, while stable is still there."""
    if context.stable is None or not context.switches or context.rollout.full:
        return True
    applied = parse_time(context.rollout.weight_applied_at)
    interval = context.spec.rollout.analysis.interval.seconds
    until = (context.draft.now if applied is None else applied) + interval
    if context.draft.now >= until:
        return True
    watched = format_duration(interval)
    context.draft.wait("WatchingSwitch", f"{context.rollout.to} has all traffic and is watched for {watched}", until)
    return False


def weight_for(context: StageContext, share: Share, other: Share) -> int:
    """The candidate's weight that ready pods and the goal allow now; ``other`` is stable."""
    swap = swap_of(context)
    if swap is not None and other.ready > 0 and share.serves:
        return swapped_weight(context, swap, share.ready)
    weights = moving_up(
        other, share, context.goal, context.sized(share.revision), context.draft.room, at_once=context.switches
    )
    return weights[share.revision]


def _shift(context: StageContext) -> bool:
    """Set the weights that capacity allows; True once the goal is intended, read back and settled."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None:
        return False
    size(context, candidate)
    share = share_of(draft, candidate, context.settle)
    goal: int | None = context.goal
    if stable is None:
        changed = apply_split(draft, {candidate.revision: draft.room}, context.settle)
        weight = draft.room
    else:
        other = share_of(draft, stable, context.settle)
        weight = weight_for(context, share, other)
        if context.rollout.paused and weight > share.weight and other.ready > 0:
            weight = min(share.weight, draft.room)
        changed = apply_split(draft, {stable.revision: draft.room - weight, candidate.revision: weight}, context.settle)
        swap = swap_of(context)
        if swap is not None and other.ready > 0:
            goal = swapped_goal(context, swap)
    if changed:
        draft.set_rollout(stage_at=format_time(draft.now))
    if context.rollout.paused and stable is not None:
        draft.wait("Paused", f"paused by {context.rollout.by or 'unknown'}", context.pause_deadline)
        return False
    if weight != goal:
        wait_or_fail(context, *_short_of_capacity(context, candidate, share))
        return False
    if not context.rollout.weight_applied_at:
        wait_for_mesh(context, "WaitingForMesh", f"the router takes up {weight} % for {candidate.name}")
        return False
    return True


def _short_of_capacity(context: StageContext, candidate: VersionStatus, share: Share) -> tuple[str, str]:
    """Why the weight is not what the step asks for: what keeps pods from being ready, where that is known."""
    view = context.view(candidate)
    goal = context.goal
    if swap_of(context) is not None and context.stable is not None:
        text = f"pods of {context.stable.name} give way to pods of {candidate.name} one at a time: {share.ready} ready"
        trouble, detail = startup_message(candidate, view, candidate.replicas)
        ordinary = trouble in ("WaitingForPods", "Verifying")
        return ("Swapping", text) if ordinary else (trouble, f"{text}; {detail}")
    need = context.sized(candidate.revision).replicas_for(goal)
    text = f"{share.ready} of {need} replicas of {candidate.name} are ready for {goal} %"
    if share.ready < need:
        trouble, detail = startup_message(candidate, view, need)
        if trouble not in ("WaitingForPods", "Verifying"):
            return trouble, f"{detail}; {need} are needed for {goal} %"
        if context.surge is not None and context.draft.caps.get(candidate.revision, need) < need:
            return "SurgeDeadlock", f"{text}; maxSurgeGPUs allows no more"
    return "WaitingForCapacity", text
