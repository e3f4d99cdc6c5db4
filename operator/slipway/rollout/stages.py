"""Running the stages of a rollout: one function per stage, each of which waits or enters the next one."""

from collections.abc import Callable, Mapping

from slipway.api.status import Outcome, Stage
from slipway.api.timestamps import format_time
from slipway.rollout.context import StageContext
from slipway.rollout.draft import Draft
from slipway.rollout.harm import check_harm
from slipway.rollout.observing import observing
from slipway.rollout.returning import returning
from slipway.rollout.shifting import promoting, shifting
from slipway.rollout.starting import exposing, starting

__all__ = ["confirm", "run_stage"]

MAX_TRANSITIONS = 8
"""More than any chain of stages that one snapshot can allow; a guard against a cycle."""


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
        check_harm(context)
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
    context.draft.caps.clear()
    if stable is not None:
        context.draft.floors[stable.revision] = stable.replicas


def _finished(context: StageContext) -> None:
    """Nothing is left to do."""


_STAGES: Mapping[Stage, Callable[[StageContext], None]] = {
    Stage.STARTING: starting,
    Stage.EXPOSING: exposing,
    Stage.SHIFTING: shifting,
    Stage.OBSERVING: observing,
    Stage.PROMOTING: promoting,
    Stage.RETURNING: returning,
    Stage.FINISHED: _finished,
}
