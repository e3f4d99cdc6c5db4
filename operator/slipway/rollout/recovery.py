"""Rebuilding a lost status from what still runs: backup tools drop status, and people clear it.

The live weights are kept and a promotion is never inferred: the revision with most weight is stable, and the served
revision, if it has some of the rest, is a rollout at the step whose weight it has reached.
"""

from slipway.api.observed import Observed, RevisionView
from slipway.api.status import Role, RolloutStatus, Stage, VersionStatus, VersionWeight
from slipway.api.timestamps import format_time
from slipway.rollout.draft import Draft

__all__ = ["recover"]


def recover(draft: Draft, observed: Observed, target: str, step_weights: tuple[int, ...], settle: float) -> bool:
    """Fill an empty draft from children; False when there is nothing to recover."""
    if draft.entries or draft.rollout is not None:
        return False
    weights = observed.traffic.weights
    views = [view for view in observed.revisions.values() if view.exists]
    if not views or not any(weights.get(view.revision) for view in views):
        return False
    views.sort(key=lambda view: (weights.get(view.revision, 0), view.revision != target, view.revision))
    stable = views[-1]
    for view in views:
        draft.entries[view.revision] = _entry(draft, view, observed, settle)
    draft.update(stable.revision, role=Role.STABLE)
    candidate = draft.entries.get(target)
    if candidate is not None and candidate.role is not Role.STABLE and weights.get(target):
        reached = [step for step, weight in enumerate(step_weights, start=1) if weight <= weights[target]]
        _resume(draft, stable, candidate, max(reached, default=1), len(step_weights))
    draft.emit("StatusRecovered", f"status was empty; rebuilt from {len(views)} revisions and the live weights")
    return True


def _entry(draft: Draft, view: RevisionView, observed: Observed, settle: float) -> VersionStatus:
    now = format_time(draft.now)
    subset = view.revision in observed.traffic.subsets
    weight = observed.traffic.weights.get(view.revision, 0)
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
        reason="StatusRecovered",
        message="status was empty; the rollout goes on from the live weight with fresh evidence",
    )
