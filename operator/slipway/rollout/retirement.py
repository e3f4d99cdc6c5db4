"""How a revision that is no longer served goes: weight 0 confirmed, silent, subset removed, settled, pods removed.

A retiring revision loses its pinned route with its role; its subset goes only after the mesh had time to learn that,
and where requests are counted, when none comes any more.
"""

from collections.abc import Collection

from slipway.api.observed import Observed
from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time, parse_time
from slipway.rollout.draft import Draft

__all__ = ["LONGEST_WAIT_FOR_SILENCE", "retire"]

LONGEST_WAIT_FOR_SILENCE = 300.0
"""Seconds after which a revision goes although requests still come: a proxy has learned by then, and a client that goes
past the mesh never will."""
STILL_SERVING = "StillServing"


def retire(
    draft: Draft,
    observed: Observed,
    settle: float,
    asked: Collection[str] = (),
    patience: float = LONGEST_WAIT_FOR_SILENCE,
) -> None:
    """Take every revision that is due one step further out; each step waits for the one before to be observed.

    ``asked`` are revisions that still get requests, for which ``patience`` seconds are waited at most.
    """
    for entry in tuple(draft.entries.values()):
        match entry.role:
            case Role.PREVIOUS | Role.RETIRING:
                begun = parse_time(entry.retire_at)
                patient = begun is not None and draft.now < begun + patience
                _step(draft, entry, observed, settle, asked=patient and entry.revision in asked)
            case Role.STABLE | Role.CANDIDATE | Role.EXPERIMENT:
                continue


def _step(draft: Draft, entry: VersionStatus, observed: Observed, settle: float, *, asked: bool) -> None:
    if entry.weight.intended > 0 or entry.weight.applied > 0:
        return
    due = parse_time(entry.retire_at)
    if due is not None and draft.now < due:
        return
    if entry.role is Role.PREVIOUS:
        draft.update(entry.revision, role=Role.RETIRING, retire_at=format_time(draft.now + settle))
        return
    if entry.subset:
        if asked:
            draft.update(entry.revision, reason=STILL_SERVING, message="it goes when requests no longer come to it")
            return
        cleared = {"reason": "", "message": ""} if entry.reason == STILL_SERVING else {}
        draft.update(entry.revision, subset=False, subset_at="", **cleared)
        return
    if not entry.subset_at or draft.since(entry.subset_at) < settle:
        return
    if entry.replicas > 0:
        draft.update(entry.revision, replicas=0)
        return
    view = observed.of(entry.revision)
    if not view.pods and view.replicas == 0:
        del draft.entries[entry.revision]
