"""Writing a split of traffic into the draft, and the split that holds while no rollout moves."""

from collections.abc import Mapping

from slipway.api.status import Role, Stage, VersionStatus
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft
from slipway.rollout.weights import Share, standing

__all__ = ["apply_split", "apply_standing", "share_of"]


def share_of(draft: Draft, entry: VersionStatus, settle: float) -> Share:
    """An entry as the split of traffic sees it; pods that have not passed their checks do not count."""
    verified = entry.verified == "Passed"
    return Share(
        revision=entry.revision,
        ready=entry.ready_replicas if verified else 0,
        exposed=entry.subset and bool(entry.subset_at) and draft.since(entry.subset_at) >= settle,
        weight=entry.weight.intended,
    )


def apply_split(draft: Draft, weights: Mapping[str, int]) -> bool:
    """Set intended weights, 0 for every entry not named; True when any of them changed."""
    before = dict(draft.all_weights())
    after = {revision: weights.get(revision, 0) for revision in draft.entries}
    if before == after:
        return False
    for revision, weight in after.items():
        draft.set_weight(revision, weight)
    if draft.rollout is not None and draft.rollout.stage is not Stage.FINISHED:
        draft.set_rollout(weight_written_at=format_time(draft.now), weight_seen_at="", weight_applied_at="")
    return True


def apply_standing(draft: Draft, settle: float) -> None:
    """All traffic to stable; to a previous version that still serves while stable does not."""
    stable = draft.in_role(Role.STABLE)
    if stable is None:
        return
    previous = [share_of(draft, entry, settle) for entry in draft.entries.values() if entry.role is Role.PREVIOUS]
    weights = standing(share_of(draft, stable, settle), previous)
    if apply_split(draft, weights):
        serving = next((entry.name for entry in draft.entries.values() if weights.get(entry.revision) == 100), "")
        draft.emit("TrafficMoved", f"all traffic goes to {serving}", warning=weights[stable.revision] != 100)
