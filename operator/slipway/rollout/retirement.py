"""How a revision that is no longer served goes: weight 0 confirmed, subset removed, settled, pods removed.

A retiring revision loses its pinned route with its role; its subset goes only after the mesh had time to learn that.
"""

from slipway.api.observed import Observed
from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time, parse_time
from slipway.rollout.draft import Draft

__all__ = ["retire"]


def retire(draft: Draft, observed: Observed, settle: float) -> None:
    """Take every revision that is due one step further out; each step waits for the one before to be observed."""
    for entry in tuple(draft.entries.values()):
        match entry.role:
            case Role.PREVIOUS | Role.RETIRING:
                _step(draft, entry, observed, settle)
            case Role.STABLE | Role.CANDIDATE | Role.EXPERIMENT:
                continue


def _step(draft: Draft, entry: VersionStatus, observed: Observed, settle: float) -> None:
    if entry.weight.intended > 0 or entry.weight.applied > 0:
        return
    due = parse_time(entry.retire_at)
    if due is not None and draft.now < due:
        return
    if entry.role is Role.PREVIOUS:
        draft.update(entry.revision, role=Role.RETIRING, retire_at=format_time(draft.now + settle))
        return
    if entry.subset:
        draft.update(entry.revision, subset=False, subset_at="")
        return
    if not entry.subset_at or draft.since(entry.subset_at) < settle:
        return
    if entry.replicas > 0:
        draft.update(entry.revision, replicas=0)
        return
    view = observed.of(entry.revision)
    if not view.pods and view.replicas == 0:
        del draft.entries[entry.revision]
