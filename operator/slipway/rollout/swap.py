"""How many pods the candidate and stable have while a rollout is under way, and what weight follows from that."""

from dataclasses import dataclass

from slipway.api.observed import Observed
from slipway.api.rollout import Strategy
from slipway.api.status import Role, Stage, VersionStatus
from slipway.rollout.context import StageContext
from slipway.rollout.draft import Draft
from slipway.rollout.surge import Surge

__all__ = ["Swap", "deadlock", "hold_back", "size", "size_returning", "swap_of", "swapped_goal", "swapped_weight"]


@dataclass(frozen=True, slots=True)
class Swap:
    """Both revisions under a bound on GPUs."""

    surge: Surge
    stable: VersionStatus
    candidate: VersionStatus
    stable_present: int
    candidate_present: int
    least_stable: int
    """Pods that stable keeps: one, unless it is broken and has none to lose."""
    candidates: int
    """Candidate pods that the goal asks for."""
    stables: int
    """Stable pods beside them."""

    @property
    def bound(self) -> bool:
        """Whether the candidate takes GPUs of stable, or still holds some."""
        return min(self.stables, self.stable.replicas) < self.surge.whole and self.surge.stable_gpus > 0

    @property
    def most(self) -> int:
        """Most candidate pods that there can be before stable is gone."""
        return self.surge.most(self.least_stable)

    @property
    def shrinking(self) -> bool:
        """Whether candidate pods hold GPUs that stable is to get back."""
        return (
            self.stable.replicas < self.stables
            and self.surge.stable_beside(self.candidate_present) <= self.stable_present
        )


def size(context: StageContext, candidate: VersionStatus) -> None:
    """The candidate is sized for the weight it is on the way to, stable keeps what it has; or both swap pods."""
    draft, stable = context.draft, context.stable
    goal = max(context.sized_for, candidate.weight.intended)
    draft.floors[candidate.revision] = context.sized(candidate.revision).replicas_for(goal)
    if stable is None:
        return
    if context.strategy is Strategy.RECREATE:
        _recreate(context, candidate, stable)
        return
    if context.surge is None:
        return
    pods = _pods(context, context.surge, stable, candidate)
    if not pods.bound or context.switches:
        limit = context.surge.candidates_beside(pods.stable_present)
        draft.caps[candidate.revision] = max(limit, candidate.replicas)
        return
    moving = not context.rollout.paused or context.rollout.stage in (Stage.STARTING, Stage.EXPOSING)
    candidates, stables = _next_pods(context, pods) if moving else (candidate.replicas, stable.replicas)
    draft.floors[candidate.revision] = draft.caps[candidate.revision] = candidates
    draft.floors[stable.revision] = draft.caps[stable.revision] = stables


def _recreate(context: StageContext, candidate: VersionStatus, stable: VersionStatus) -> None:
    """Stable is stopped, and no candidate pod is made before its pods are gone."""
    draft = context.draft
    draft.floors[stable.revision] = draft.caps[stable.revision] = 0
    present = context.present(stable)
    if present > 0 and candidate.replicas == 0:
        draft.floors[candidate.revision] = draft.caps[candidate.revision] = 0
    elif context.surge is not None:
        draft.caps[candidate.revision] = max(candidate.replicas, context.surge.candidates_beside(present))


def _pods(context: StageContext, surge: Surge, stable: VersionStatus, candidate: VersionStatus) -> Swap:
    goal = context.sized_for
    failing = [pod.failing for pod in context.view(stable).pods]
    broken = stable.ready_replicas == 0 and (stable.replicas == 0 or (bool(failing) and all(failing)))
    least = 0 if broken else 1
    needed = context.sized(candidate.revision).replicas_for(goal)
    candidates, stables = surge.plan(goal, needed, least) if goal > 0 else (0, surge.whole)
    return Swap(
        surge=surge,
        stable=stable,
        candidate=candidate,
        stable_present=context.present(stable),
        candidate_present=context.present(candidate),
        least_stable=least,
        candidates=candidates,
        stables=stables,
    )


def _next_pods(context: StageContext, pods: Swap) -> tuple[int, int]:
    """Replicas of candidate and stable for now: never two moves at a time, never more GPUs than allowed."""
    surge, stable, candidate = pods.surge, pods.stable, pods.candidate
    now, kept = candidate.replicas, stable.replicas
    if now < pods.candidates:
        fitting = max(now, min(pods.candidates, surge.candidates_beside(pods.stable_present)))
        if fitting == now and _may_give_up(context, pods):
            return now, kept - 1
        return fitting, kept
    if pods.shrinking and _weight_left(context, pods):
        return now - 1, kept
    return now, max(kept, min(pods.stables, surge.stable_beside(pods.candidate_present)))


def _may_give_up(context: StageContext, pods: Swap) -> bool:
    """Whether stable may lose a pod: the last one given up is gone, its successor serves, the weight has followed."""
    stable, candidate = pods.stable, pods.candidate
    if stable.replicas <= pods.least_stable or pods.stable_present > stable.replicas:
        return False
    if 0 < stable.ready_replicas < stable.replicas - 1:
        return False
    if candidate.replicas == 0:
        return True
    served = candidate.ready_replicas >= candidate.replicas and candidate.verified == "Passed"
    owed = min(pods.surge.candidate_least(stable.replicas), context.draft.room)
    return served and candidate.weight.applied >= min(owed, pods.surge.candidate_limit(candidate.replicas, pods.most))


def _weight_left(context: StageContext, pods: Swap) -> bool:
    """Whether the weight of the candidate fits into one pod less, as the router confirms."""
    if pods.candidate.replicas <= 0:
        return False
    limit = max(pods.surge.share(pods.candidate.replicas - 1), context.goal if pods.candidate.replicas > 1 else 0)
    weight = pods.candidate.weight
    confirmed = bool(context.rollout.weight_applied_at) or not context.rollout.weight_written_at
    return max(weight.intended, weight.applied) <= limit and confirmed


def swap_of(context: StageContext) -> Swap | None:
    """Both revisions, where pods of the candidate take the place of pods of stable while both serve."""
    candidate, stable = context.candidate, context.stable
    if context.surge is None or candidate is None or stable is None or context.switches:
        return None
    if context.strategy is Strategy.RECREATE:
        return None
    pods = _pods(context, context.surge, stable, candidate)
    return pods if pods.bound else None


def swapped_weight(context: StageContext, pods: Swap, ready: int) -> int:
    """The candidate's weight for now, with so many of its pods ready: in shares of one pod.

    The pods that fit beside stable's last one take all traffic when their own share is confirmed: that pod can only
    make way once it has none.
    """
    candidate, share = pods.candidate, pods.surge.share(ready)
    if pods.shrinking and candidate.replicas >= pods.candidates:
        return min(candidate.weight.intended, max(context.goal, pods.surge.share(candidate.replicas - 1)))
    least = pods.surge.candidate_least(pods.stable.replicas)
    weight = candidate.weight
    settled = weight.intended == weight.applied == share and bool(context.rollout.weight_applied_at)
    complete = ready >= pods.most and (settled or weight.intended > share)
    return min(max(context.goal, least), 100 if complete else share, context.draft.room)


def swapped_goal(context: StageContext, pods: Swap) -> int | None:
    """The weight at which the present goal is reached; None while pods are still to be swapped for it."""
    if pods.candidate.replicas < pods.candidates or pods.shrinking:
        return None
    least = pods.surge.candidate_least(min(pods.stables, pods.stable.replicas))
    limit = pods.surge.candidate_limit(pods.candidate.replicas, pods.most)
    return min(max(context.goal, least), limit, context.draft.room)


def size_returning(context: StageContext, candidate: VersionStatus, stable: VersionStatus) -> int | None:
    """Stable gets its pods back as the candidate's go; gives the weight that the candidate has to be down to."""
    draft = context.draft
    whole = max(stable.replicas, context.sized(stable.revision).replicas_for(100))
    draft.floors[candidate.revision] = candidate.replicas
    draft.floors[stable.revision] = whole
    if context.strategy is Strategy.RECREATE:
        _recreate_back(context, candidate, stable)
        return None
    surge = context.surge
    if surge is None or surge.stable_gpus <= 0 or stable.replicas >= surge.whole:
        return None
    pods = Swap(surge, stable, candidate, context.present(stable), context.present(candidate), 1, 0, surge.whole)
    leaving = pods.shrinking and _weight_left(context, pods)
    draft.caps[candidate.revision] = draft.floors[candidate.revision] = candidate.replicas - leaving
    fitting = max(stable.replicas, surge.stable_beside(pods.candidate_present))
    draft.caps[stable.revision] = draft.floors[stable.revision] = fitting
    return surge.share(candidate.replicas - 1) if pods.shrinking and candidate.replicas > 0 else None


def _recreate_back(context: StageContext, candidate: VersionStatus, stable: VersionStatus) -> None:
    """The candidate is stopped before stable starts again, as it was the other way round."""
    draft = context.draft
    draft.caps[candidate.revision] = draft.floors[candidate.revision] = 0
    if context.present(candidate) > 0:
        draft.caps[stable.revision] = draft.floors[stable.revision] = stable.replicas


def deadlock(context: StageContext) -> str:
    """Why the bound on GPUs lets the candidate never start; empty when it does."""
    surge, stable, candidate = context.surge, context.stable, context.candidate
    if surge is None or stable is None or candidate is None:
        return ""
    need = context.sized(candidate.revision).replicas_for(context.sized_for)
    if context.strategy is Strategy.RECREATE:
        most, beside = surge.most(0), "after stable has stopped"
    elif context.switches:
        most, beside = surge.most(surge.whole), "beside stable"
    else:
        pods = _pods(context, surge, stable, candidate)
        most, need, beside = pods.most, 1, "while stable keeps a pod"
    if most >= need:
        return ""
    return (
        f"maxSurgeGPUs allows {surge.allowed} GPUs beyond stable's {surge.whole} x {surge.stable_gpus}, and "
        f"{need} pods of {candidate.name} with {surge.candidate_gpus} each do not fit {beside}; "
        "raise rollout.maxSurgeGPUs or choose strategy Recreate"
    )


def hold_back(draft: Draft, surge: Surge, observed: Observed) -> None:
    """After a rollout that swapped pods: the version that stays grows only into GPUs that the other has left."""
    rollout = draft.rollout
    if rollout is None or draft.active:
        return
    old, new = draft.entries.get(rollout.from_revision), draft.entries.get(rollout.to_revision)
    if old is None or new is None:
        return
    if new.role is Role.STABLE and old.role is Role.RETIRING:
        present = max(old.replicas, len(observed.of(old.revision).pods))
        limit = max(new.replicas, surge.candidates_beside(present))
        draft.caps[new.revision] = limit
        draft.floors[new.revision] = min(limit, max(new.replicas, min(surge.whole, surge.most(0))))
    elif old.role is Role.STABLE and new.role is Role.RETIRING:
        present = max(new.replicas, len(observed.of(new.revision).pods))
        if surge.stable_beside(present) < surge.whole:
            draft.caps[old.revision] = max(old.replicas, surge.stable_beside(present))
