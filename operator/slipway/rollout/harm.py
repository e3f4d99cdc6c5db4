"""What becomes of a rollout whose candidate is found harmful."""

from typing import assert_never

from slipway.api.judgement import Judgement
from slipway.api.rollout import OnHarm, Strategy
from slipway.api.status import Outcome, Stage, Verdict
from slipway.api.timestamps import format_time
from slipway.rollout.context import StageContext

__all__ = ["check_harm", "roll_back"]


def check_harm(context: StageContext) -> None:
    """Harm takes effect in the reconcile that finds it, in whatever stage the rollout is.

    A judgement made before the last step back speaks of evidence that has been laid aside.
    """
    rollout, stable = context.rollout, context.stable
    if rollout.outcome is not None or stable is None or rollout.stage is Stage.FINISHED:
        return
    if context.breaker is not None:
        roll_back(context, context.breaker)
        return
    if context.judgement.verdict is not Verdict.HARMFUL or rollout.step_downs != context.step_downs:
        return
    candidate = context.candidate
    compared = rollout.strategy is Strategy.SHADOW and bool(rollout.evidence_from)
    exposed = candidate is not None and (candidate.weight.intended > 0 or compared)
    if not exposed or (rollout.full and rollout.harm_at):
        return
    match context.spec.rollout.analysis.on_harm:
        case OnHarm.ROLLBACK:
            roll_back(context, context.judgement)
        case OnHarm.STEP_DOWN:
            _step_down(context)
        case OnHarm.PAUSE:
            if not rollout.harm_at:
                context.draft.set_rollout(paused=True, harm_at=format_time(context.draft.now), by="analysis")
                context.draft.emit("HarmDetected", context.judgement.message, warning=True)
        case unreachable:
            assert_never(unreachable)


def roll_back(context: StageContext, judgement: Judgement) -> None:
    """Traffic goes back to stable because of what was found."""
    draft = context.draft
    rollout = context.rollout
    exposed = rollout.weight_written_at != "" or rollout.evidence_from != ""
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


def _step_down(context: StageContext) -> None:
    """One step back with fresh evidence, once in a rollout; where there is no step before, back to stable.

    The chance that a healthy candidate is rolled back stays below alpha: it has to be found harmful here first.
    """
    draft, rollout = context.draft, context.rollout
    last = len(context.spec.rollout.steps)
    before = last if rollout.stage is Stage.PROMOTING else min(rollout.step, last) - 1
    if rollout.strategy is not Strategy.CANARY or rollout.full or rollout.step_downs or before < 1:
        roll_back(context, context.judgement)
        return
    weight = context.spec.rollout.steps[before - 1].weight
    message = f"one step back to {weight} %: {context.judgement.message}"
    draft.enter(
        Stage.SHIFTING,
        "SteppedDown",
        message,
        step=before,
        step_downs=rollout.step_downs + 1,
        stepped_down_for=context.judgement.check,
        evidence_from="",
        approved=False,
    )
    draft.emit("SteppedDown", f"{rollout.to}: {message}", warning=True)
