"""The stage that gives all weight back to stable."""

from slipway.api.rollout import Strategy
from slipway.api.status import Outcome, Role, VersionStatus
from slipway.api.timestamps import format_time
from slipway.rollout.context import StageContext
from slipway.rollout.split import apply_split, share_of
from slipway.rollout.swap import size_returning
from slipway.rollout.weights import going_back

__all__ = ["returning"]


def returning(context: StageContext) -> None:
    """Traffic goes back as fast as stable's ready replicas allow; the candidate never gains any."""
    draft, candidate, stable = context.draft, context.candidate, context.stable
    if candidate is None or stable is None:
        return
    rollout = context.rollout
    limit = size_returning(context, candidate, stable)
    share, other = (share_of(draft, entry, context.settle) for entry in (candidate, stable))
    weights = dict(going_back(other, share, context.sized(stable.revision), draft.room))
    if limit is not None and weights[candidate.revision] > limit and other.ready > 0:
        weights = {stable.revision: draft.room - limit, candidate.revision: limit}
    changed = apply_split(draft, weights, context.settle)
    weight = draft.entries[candidate.revision].weight.intended
    confirmed = rollout.weight_applied_at if not changed else ""
    waits_for_mesh = bool(rollout.weight_written_at) and not confirmed
    if weight > 0 or waits_for_mesh or (_restoring(context, stable, other.ready) and draft.now < context.deadline):
        draft.set_rollout(deadline=format_time(context.deadline))
        return
    draft.update(candidate.revision, role=Role.RETIRING, retire_at=format_time(draft.now + context.settle))
    draft.finish()
    outcome = context.rollout.outcome or Outcome.FAILED
    draft.emit(f"Rollout{outcome.value}", f"{stable.name} has all traffic; {candidate.name} goes", warning=True)


def _restoring(context: StageContext, stable: VersionStatus, ready: int) -> bool:
    """Whether stable has yet to get back the pods that it gave up."""
    if context.strategy is Strategy.RECREATE:
        return ready <= 0
    surge = context.surge
    return surge is not None and surge.stable_gpus > 0 and stable.replicas < surge.whole
