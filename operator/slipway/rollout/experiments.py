"""Experiments: long-lived versions with a fixed weight or with matches of their own, beside whatever is rolled out.

They come in the same order as a candidate (pods ready, warm and verified; subset; settled; weight and match) and go in
the reverse one. Nothing judges them: they are the user's, and stay until the user takes them away.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slipway.api.observed import Observed
from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time
from slipway.rollout.capacity import Capacity
from slipway.rollout.draft import Draft
from slipway.rollout.split import share_of
from slipway.rollout.startup import startup_failure, startup_message
from slipway.rollout.weights import within

__all__ = ["ExperimentTarget", "keep_experiments"]


@dataclass(frozen=True, slots=True)
class ExperimentTarget:
    """An experiment of the spec."""

    version: str
    revision: str
    weight: int
    """Share of all unpinned traffic, in per cent."""
    matched: bool
    """Whether it has matches of its own."""


def keep_experiments(
    draft: Draft,
    targets: Sequence[ExperimentTarget],
    observed: Observed,
    sized: Callable[[str], Capacity],
    settle: float,
) -> None:
    """Take every experiment one step in or out, and grant the weights that hold now.

    They wait for a first version that serves: an experiment is something beside it.
    """
    wanted = {target.revision: target for target in targets}
    if draft.in_role(Role.STABLE) is None:
        wanted = {}
    for target in wanted.values():
        _admit(draft, target)
    for entry in tuple(draft.entries.values()):
        if entry.role is not Role.EXPERIMENT:
            continue
        if entry.revision in wanted:
            _advance(draft, entry, wanted[entry.revision], observed, sized(entry.revision), settle)
        else:
            _dismiss(draft, entry, settle)


def _admit(draft: Draft, target: ExperimentTarget) -> None:
    """Give a version its role; one that serves or is rolled out keeps the one it has."""
    entry = draft.entries.get(target.revision)
    if entry is None:
        draft.entries[target.revision] = VersionStatus(
            name=target.version,
            revision=target.revision,
            role=Role.EXPERIMENT,
            subset_at=format_time(draft.now),
        )
        draft.emit("ExperimentStarted", f"{target.version} starts beside the served version")
    elif entry.role in (Role.PREVIOUS, Role.RETIRING):
        draft.update(target.revision, role=Role.EXPERIMENT, retire_at="")


def _dismiss(draft: Draft, entry: VersionStatus, settle: float) -> None:
    """Weight and match end now; the subset and the pods follow once the router has settled."""
    draft.update(entry.revision, role=Role.RETIRING, matched=False, retire_at=format_time(draft.now + settle))
    draft.emit("ExperimentEnded", f"{entry.name} gets no more traffic and goes")


def _advance(
    draft: Draft,
    entry: VersionStatus,
    target: ExperimentTarget,
    observed: Observed,
    capacity: Capacity,
    settle: float,
) -> None:
    needed = max(1, capacity.replicas_for(target.weight))
    draft.floors[entry.revision] = needed
    ready = entry.ready_replicas > 0 and entry.verified == "Passed"
    if ready and not entry.subset:
        entry = draft.update(entry.revision, subset=True, subset_at="")
    share = share_of(draft, entry, settle)
    granted = min(target.weight, within(capacity.carried(share.ready), target.weight, share.weight))
    draft.granted[entry.revision] = granted if share.serves else 0
    reason, message = _trouble(entry, needed, observed)
    if share.serves and granted == target.weight:
        reason, message = "", ""
    draft.update(entry.revision, matched=target.matched and share.serves, reason=reason, message=message)
    settled = share.serves and granted == target.weight == entry.weight.applied
    draft.moving = draft.moving or not settled


def _trouble(entry: VersionStatus, needed: int, observed: Observed) -> tuple[str, str]:
    """Why an experiment has not got what it is to have."""
    view = observed.of(entry.revision)
    failure = startup_failure(view)
    if entry.verified == "Failed":
        failure = (view.probe.reason or "VerificationFailed", view.probe.message)
    if failure is not None:
        return failure
    if entry.ready_replicas >= needed and entry.verified == "Passed":
        return "SubsetSettling", f"the router learns the subset of {entry.name}"
    return startup_message(entry, view, needed)
