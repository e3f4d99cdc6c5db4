"""Rebuilding a lost status from what still runs: backup tools drop status, and people clear it.

The live weights are kept and a promotion is never inferred: the revision with most weight is stable, and the served
revision, if it has some of the rest, is a rollout at the step whose weight it has reached. Where the routes are lost as
well, the largest revision but that one and experiments is stable.
"""

from collections.abc import Collection, Mapping, Sequence

from slipway.api.observed import Observed, RevisionView
from slipway.api.status import Role, RolloutStatus, Stage, VersionStatus, VersionWeight
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft

__all__ = ["recover"]


def recover(
    draft: Draft,
    observed: Observed,
    target: str,
    step_weights: tuple[int, ...],
    settle: float,
    experiments: Collection[str] = (),
) -> bool:
    """Fill what the draft lacks from children; False when there is nothing to recover.

    ``target`` is the revision that the spec serves, ``experiments`` are those that it asks for beside it.

    A revision that serves is never forgotten, or its pods would be pruned: whoever clears a part of the status leaves
    the rest as it is.
    """
    lost = [view for view in observed.revisions.values() if view.exists and view.revision not in draft.entries]
    weights = observed.traffic.weights
    if not observed.traffic.exists and not draft.entries and not draft.active:
        weights = _without_routes(lost, target, experiments)
        _keep_size(draft, observed, target, weights, settle)
    if not any(weights.get(view.revision) for view in lost):
        return False
    lost.sort(key=lambda view: (weights.get(view.revision, 0), view.revision != target, view.revision))
    for view in lost:
        draft.entries[view.revision] = _entry(draft, view, observed, weights.get(view.revision, 0), settle)
    if draft.active and draft.rollout is not None:
        _take_part(draft, draft.rollout, {view.revision for view in lost})
    elif draft.in_role(Role.STABLE) is None:
        _lead(draft, lost[-1], target, weights.get(target, 0), step_weights)
    names = ", ".join(sorted(view.revision for view in lost))
    source = "objects and live weights" if observed.traffic.exists else "Deployments; there are no routes either"
    draft.emit("StatusRecovered", f"status lacked {names}; rebuilt from {source}")
    return True


def _without_routes(lost: Sequence[RevisionView], target: str, experiments: Collection[str]) -> Mapping[str, int]:
    """All to the largest revision but the one that is served, which may be a candidate that never had a request."""
    others = [view for view in lost if view.replicas > 0 and view.revision not in (target, *experiments)]
    chosen = max(others, key=lambda view: (view.replicas, view.revision), default=None)
    return {chosen.revision: 100} if chosen is not None else {}


def _keep_size(draft: Draft, observed: Observed, target: str, weights: Mapping[str, int], settle: float) -> None:
    """With nothing beside it, the served revision starts as a first version does, with the pods that it has."""
    view = observed.revisions.get(target)
    if not weights and view is not None and view.exists and view.replicas > 0:
        draft.entries[target] = _entry(draft, view, observed, 0, settle)


def _take_part(draft: Draft, rollout: RolloutStatus, lost: Collection[str]) -> None:
    """The rollout is known: it goes on as it was."""
    for revision, role in ((rollout.from_revision, Role.STABLE), (rollout.to_revision, Role.CANDIDATE)):
        if revision in lost:
            draft.update(revision, role=role, retire_at="")


def _lead(draft: Draft, stable: RevisionView, target: str, weight: int, step_weights: tuple[int, ...]) -> None:
    """Nobody knows what was going on: the revision with most weight is stable."""
    draft.update(stable.revision, role=Role.STABLE, retire_at="")
    candidate = draft.entries.get(target)
    if candidate is not None and candidate.role is not Role.STABLE and weight:
        reached = [step for step, least in enumerate(step_weights, start=1) if least <= weight]
        _resume(draft, stable, candidate, max(reached, default=1), len(step_weights))


def _entry(draft: Draft, view: RevisionView, observed: Observed, weight: int, settle: float) -> VersionStatus:
    now = format_time(draft.now)
    subset = view.revision in observed.traffic.subsets
    return VersionStatus(
        name=view.version,
        revision=view.revision,
        role=Role.RETIRING,
        replicas=view.replicas,
        weight=VersionWeight(intended=weight, applied=weight),
        subset=subset,
        subset_at=format_time(draft.now - settle),
        retire_at=now,
        verified="Passed" if weight else "",
    )


def _resume(draft: Draft, stable: RevisionView, candidate: VersionStatus, step: int, steps: int) -> None:
    now = format_time(draft.now)
    draft.update(candidate.revision, role=Role.CANDIDATE, retire_at="")
    draft.rollouts += 1
    draft.rollout = RolloutStatus(
        id=f"r-{draft.rollouts:06d}",
        from_=stable.version,
        to=candidate.name,
        from_revision=stable.revision,
        to_revision=candidate.revision,
        step=step,
        steps=steps,
        stage=Stage.SHIFTING,
        stage_at=now,
        reference=max(1, stable.replicas),
        started_at=now,
        weight_written_at=now,
        reason="StatusRecovered",
        message="status was empty; the rollout goes on from the live weight with fresh evidence",
    )
