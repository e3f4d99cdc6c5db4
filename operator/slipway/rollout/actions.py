"""Answers to ``status.action``: each id once, whatever happens in between.

Two writers may ask at the same time, and a late copy of an earlier request may come after a newer one. A status
write does not move ``metadata.generation`` and may be lost or late; the id makes a request safe to repeat.
"""

from collections.abc import Sequence

from slipway.api.status import (
    Action,
    ActionResult,
    LastAction,
    ModelDeploymentStatus,
    Outcome,
    Role,
    Stage,
    Verb,
)
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft

__all__ = ["MEMORY", "RETRYABLE", "answer"]

MEMORY = 20
"""Identities of answered requests that are kept."""

RETRYABLE = frozenset({Outcome.ROLLED_BACK, Outcome.ABORTED, Outcome.FAILED})
"""Outcomes after which the same revision is tried again only when somebody asks for it."""

_Answer = tuple[ActionResult, str]


def answer(draft: Draft, status: ModelDeploymentStatus, target: str) -> LastAction:
    """Carry out a new action on the draft; the answer to the last one when there is no new one.

    ``target`` is the revision that the spec serves.
    """
    action, last = status.action, status.last_action
    if not action.id or action.id == last.id:
        return last
    result, message = _answer(draft, action, target, status.answered)
    if result is ActionResult.ACCEPTED:
        draft.emit(f"{action.verb}Accepted", f"{action.verb} by {action.by or 'unknown'}: {message}")
    return LastAction(id=action.id, verb=action.verb, result=result.value, message=message, at=format_time(draft.now))


def _answer(draft: Draft, action: Action, target: str, answered: Sequence[str]) -> _Answer:
    if action.id in answered:
        return ActionResult.IGNORED, f"a request with the id {action.id} was answered before; use a new one"
    try:
        verb = Verb(action.verb)
    except ValueError:
        return ActionResult.REFUSED, f"unknown verb {action.verb!r}; use one of {', '.join(Verb)}"
    present = draft.rollout.id if draft.rollout is not None else ""
    if action.rollout and action.rollout != present:
        return ActionResult.REFUSED, f"it was meant for rollout {action.rollout}, and this is {present or 'none'}"
    return _carry_out(draft, verb, action, target)


def _carry_out(draft: Draft, verb: Verb, action: Action, target: str) -> _Answer:
    match verb:
        case Verb.RETRY:
            return _retry(draft, action, target)
        case Verb.PROMOTE | Verb.PROMOTE_FULL | Verb.PAUSE | Verb.RESUME | Verb.ABORT:
            rollout = draft.rollout
            if rollout is None or rollout.stage is Stage.FINISHED:
                return ActionResult.IGNORED, "no rollout is in progress"
            if rollout.outcome is not None:
                return ActionResult.IGNORED, f"the rollout is already ending: {rollout.outcome.value}"
    match verb:
        case Verb.PROMOTE | Verb.PROMOTE_FULL:
            return _promote(draft, verb, action)
        case Verb.PAUSE:
            return _pause(draft, action)
        case Verb.RESUME:
            return _resume(draft, action)
        case _:
            return _abort(draft, action)


def _promote(draft: Draft, verb: Verb, action: Action) -> _Answer:
    rollout = draft.set_rollout()
    if verb is Verb.PROMOTE_FULL:
        draft.set_rollout(full=True, approved=True, paused=False, by=action.by)
        return ActionResult.ACCEPTED, f"the remaining steps of {rollout.to} are skipped"
    if rollout.harm_at:
        return ActionResult.REFUSED, "the evidence is against the candidate; use PromoteFull to overrule it"
    if rollout.stage is Stage.PROMOTING:
        return ActionResult.IGNORED, f"{rollout.to} is being promoted already"
    draft.set_rollout(approved=True, paused=False, by=action.by)
    step = f"step {max(rollout.step, 1)} of {rollout.steps}" if rollout.steps else f"the switch to {rollout.to}"
    return ActionResult.ACCEPTED, f"{step} is approved"


def _pause(draft: Draft, action: Action) -> _Answer:
    if draft.set_rollout().paused:
        return ActionResult.IGNORED, "the rollout is paused already"
    draft.set_rollout(paused=True, by=action.by)
    return ActionResult.ACCEPTED, "the weight stays where it is; harm is still tested"


def _resume(draft: Draft, action: Action) -> _Answer:
    rollout = draft.set_rollout()
    if not rollout.paused:
        return ActionResult.IGNORED, "the rollout is not paused"
    if rollout.harm_at:
        return ActionResult.REFUSED, "the evidence is against the candidate; Abort, or PromoteFull to overrule it"
    draft.set_rollout(paused=False, by=action.by)
    return ActionResult.ACCEPTED, "the rollout goes on"


def _abort(draft: Draft, action: Action) -> _Answer:
    rollout = draft.set_rollout()
    if draft.in_role(Role.STABLE) is None:
        return ActionResult.REFUSED, "there is no stable version to go back to; change spec.serve instead"
    draft.enter(
        Stage.RETURNING,
        Outcome.ABORTED.value,
        action.reason or f"aborted by {action.by or 'unknown'}",
        outcome=Outcome.ABORTED,
        by=action.by,
    )
    return ActionResult.ACCEPTED, f"traffic goes back to {rollout.from_}"


def _retry(draft: Draft, action: Action, target: str) -> _Answer:
    rollout = draft.rollout
    if rollout is None or rollout.to_revision != target or rollout.outcome not in RETRYABLE:
        return ActionResult.IGNORED, "there is no failed rollout of the served version to try again"
    if rollout.stage is not Stage.FINISHED:
        return ActionResult.REFUSED, "the failed rollout still returns traffic; retry when it has finished"
    draft.set_rollout(outcome=Outcome.SUPERSEDED, by=action.by)
    return ActionResult.ACCEPTED, f"{rollout.to} is tried again from the first step"
