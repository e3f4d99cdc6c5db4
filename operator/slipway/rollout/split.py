"""Writing a split of traffic into the draft, and the split that holds while no rollout moves."""

from collections.abc import Mapping

from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft
from slipway.rollout.weights import Share, standing

__all__ = ["apply_split", "apply_standing", "make_room", "share_of"]

PUT_BACK = -0.001
"""Age in seconds from which a moment lies ahead: one just written may do so by a rounding of its text."""


def share_of(draft: Draft, entry: VersionStatus, settle: float) -> Share:
    """An entry as the split of traffic sees it; pods that have not passed their checks do not count."""
    verified = entry.verified == "Passed"
    return Share(
        revision=entry.revision,
        ready=entry.ready_replicas if verified else 0,
        exposed=entry.subset and bool(entry.subset_at) and _settled(draft, entry, settle),
        weight=entry.weight.intended,
    )


def _settled(draft: Draft, entry: VersionStatus, settle: float) -> bool:
    """Whether the mesh has had time to learn of a subset; one that has been led to was, whatever the clock says now."""
    age = draft.since(entry.subset_at)
    return age >= settle or (age < PUT_BACK and entry.weight.applied > 0)


def apply_split(draft: Draft, weights: Mapping[str, int], settle: float) -> bool:
    """Set intended weights: those given, those granted to experiments, 0 elsewhere; True when any of them changed."""
    before = dict(draft.all_weights())
    after = {revision: weights.get(revision, 0) for revision in draft.entries} | draft.granted
    _rescue(draft, after, settle)
    if before == after:
        return False
    for revision, weight in after.items():
        draft.set_weight(revision, weight)
    if draft.rollout is not None:
        draft.set_rollout(weight_written_at=format_time(draft.now), weight_seen_at="", weight_applied_at="")
    return True


def _rescue(draft: Draft, weights: dict[str, int], settle: float) -> None:
    """What would go to revisions without a ready pod goes to an experiment, where nothing else can answer."""
    shares = {revision: share_of(draft, draft.entries[revision], settle) for revision in weights}
    others = {revision: weight for revision, weight in weights.items() if revision not in draft.granted and weight > 0}
    if any(shares[revision].ready > 0 for revision in others):
        return
    able = [revision for revision in sorted(draft.granted) if shares[revision].serves]
    if not able:
        return
    for revision, weight in others.items():
        weights[revision] = 0
        weights[able[0]] += weight


def make_room(draft: Draft, settle: float) -> None:
    """Give experiments what is granted to them, at the expense of stable first."""
    weights = dict(draft.all_weights())
    if sum(weights.values()) == 0:
        return
    experiments = {entry.revision for entry in draft.entries.values() if entry.role is Role.EXPERIMENT}
    leaving = {name for name, weight in weights.items() if weight and draft.entries[name].role is Role.RETIRING}
    weights = {name: draft.granted.get(name, 0) if name in experiments | leaving else weights[name] for name in weights}
    order = sorted(
        (name for name in weights if name not in experiments | leaving),
        key=lambda name: (draft.entries[name].role is not Role.STABLE, -weights[name], name),
    )
    missing = 100 - sum(weights.values())
    for name in order:
        change = max(missing, -weights[name])
        weights[name] += change
        missing -= change
    if missing == 0:
        apply_split(draft, weights, settle)


def apply_standing(draft: Draft, settle: float) -> None:
    """All traffic to stable; to a previous version that still serves while stable does not."""
    stable = draft.in_role(Role.STABLE)
    if stable is None:
        return
    previous = [share_of(draft, entry, settle) for entry in draft.entries.values() if entry.role is Role.PREVIOUS]
    weights = standing(share_of(draft, stable, settle), previous, draft.room)
    before = _served(draft)
    if apply_split(draft, weights, settle) and _served(draft) != before:
        serving = draft.entries[_served(draft)]
        draft.emit("TrafficMoved", f"all traffic goes to {serving.name}", warning=serving.revision != stable.revision)


def _served(draft: Draft) -> str:
    """The revision that gets most of the traffic; empty when none gets any."""
    entries = [entry for entry in draft.entries.values() if entry.weight.intended > 0]
    return max(entries, key=lambda entry: entry.weight.intended).revision if entries else ""
