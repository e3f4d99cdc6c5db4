"""The stage at a confirmed weight: hold, then go on because of evidence, of approval, or not at all."""

from typing import assert_never

from slipway.api.judgement import Judgement
from slipway.api.rollout import OnInconclusive, Promotion, Strategy
from slipway.api.scalars import format_duration
from slipway.api.status import Stage, Verdict
from slipway.api.timestamps import parse_time
from slipway.rollout.context import StageContext
from slipway.rollout.harm import roll_back
from slipway.rollout.shifting import weight_for
from slipway.rollout.split import share_of
from slipway.rollout.swap import size

__all__ = ["observing"]


def observing(context: StageContext) -> None:
    """Wait at the step's weight, or without any weight where the strategy compares or verifies before it switches."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None or stable is None:
        return
    rollout = context.rollout
    size(context, candidate)
    share, other = (share_of(draft, entry, context.settle) for entry in (candidate, stable))
    weight = weight_for(context, share, other) if context.strategy is Strategy.CANARY or other.ready <= 0 else 0
    if weight < share.weight or (weight > share.weight and (not rollout.paused or other.ready <= 0)):
        stage = Stage.SHIFTING if context.strategy is Strategy.CANARY else Stage.PROMOTING
        draft.enter(stage, stage.value, f"the weight of {candidate.name} follows its ready replicas")
        return
    if rollout.full:
        draft.enter(Stage.PROMOTING, "Promoting", f"the remaining steps of {rollout.to} are skipped")
        return
    if rollout.paused:
        draft.wait("Paused", f"paused by {rollout.by or 'unknown'}", context.pause_deadline)
        return
    if not rollout.approved and not _earned(context):
        return
    if context.strategy is Strategy.CANARY and rollout.step < len(context.spec.rollout.steps):
        draft.enter(Stage.SHIFTING, "Shifting", "the next weight", step=rollout.step + 1, approved=False)
        return
    # What was compared on repeated requests says nothing of served ones: their evidence begins with the switch.
    begun = rollout.evidence_from if context.strategy is Strategy.CANARY else ""
    draft.enter(Stage.PROMOTING, "Promoting", f"all traffic goes to {rollout.to}", approved=False, evidence_from=begun)


def _earned(context: StageContext) -> bool:
    """Whether the step is done without anybody's approval; says what it waits for otherwise."""
    match context.strategy:
        case Strategy.CANARY:
            last = context.rollout.step >= len(context.spec.rollout.steps)
            return _held(context) and _safe(context) and (not last or _approved(context))
        case Strategy.SHADOW:
            return _safe(context) and _approved(context)
        case Strategy.BLUE_GREEN | Strategy.RECREATE:
            return _approved(context)
        case unreachable:
            assert_never(unreachable)


def _held(context: StageContext) -> bool:
    draft, rollout, step = context.draft, context.rollout, context.step
    if step.pause is not None:
        draft.wait("AwaitingPromotion", f"step {rollout.step} waits for a Promote action", context.pause_deadline)
        return False
    if draft.since(rollout.step_started_at) < step.hold.seconds:
        until = (parse_time(rollout.step_started_at) or draft.now) + step.hold.seconds
        draft.wait("Holding", f"{step.weight} % is held for {step.hold}", until)
        return False
    return True


def _approved(context: StageContext) -> bool:
    """Whether the last step may lead to promotion, by itself or because the user's Git says so."""
    rollout, wanted = context.rollout, context.spec.rollout
    if wanted.promotion is Promotion.AUTOMATIC or wanted.approved_version == rollout.to:
        return True
    message = f"promotion waits for a Promote action or rollout.approvedVersion: {rollout.to}"
    context.draft.wait("AwaitingPromotion", message, context.pause_deadline)
    return False


def _safe(context: StageContext) -> bool:
    """Undecided evidence never promotes by itself; after maxDuration the user's policy decides."""
    if context.judgement.verdict is Verdict.SAFE and context.rollout.step_downs == context.step_downs:
        return True
    draft, rollout, analysis = context.draft, context.rollout, context.spec.rollout.analysis
    begun = parse_time(rollout.evidence_from)
    deadline = (draft.now if begun is None else begun) + analysis.max_duration.seconds
    if draft.now < deadline:
        draft.wait(context.judgement.reason, context.judgement.message, deadline)
        return False
    waited = format_duration(analysis.max_duration.seconds)
    message = f"no verdict within {waited}: {context.judgement.message}"
    match analysis.on_inconclusive:
        case OnInconclusive.PROMOTE:
            return True
        case OnInconclusive.ROLLBACK:
            roll_back(context, Judgement(Verdict.UNDECIDED, "Inconclusive", message))
            return False
        case OnInconclusive.HOLD:
            draft.wait("Inconclusive", message, deadline)
            return False
        case unreachable:
            assert_never(unreachable)
