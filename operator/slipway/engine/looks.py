"""When to look again at a rollout that waits: at the moment it waits for, not every second until then."""

from slipway.api.status import ModelDeploymentStatus, Role, RolloutStatus, Stage
from slipway.api.timestamps import parse_time

__all__ = ["UNHURRIED", "next_look"]

UNHURRIED = 5.0
"""Seconds until the next look at what tells of itself by events and by metrics: pods that start, a weight that holds.

An event that gets lost, or a clock that is put back, costs no more than that.
"""
MARGIN = 0.01
"""Seconds after a moment that it surely lies in the past: it is written in microseconds, and by another clock."""
_CALM = frozenset({Role.STABLE, Role.CANDIDATE, Role.PREVIOUS})


def next_look(asked: float | None, status: ModelDeploymentStatus, settle: float, now: float) -> float | None:
    """Seconds until the next look at an object with this ``status``, where a decision has ``asked`` for one.

    ``settle`` are the seconds that the mesh is given, ``now`` are seconds since the epoch.
    """
    rollout = status.rollout
    if asked is None or rollout is None or rollout.outcome is not None or not _is_calm(status):
        return asked
    until = _end_of_wait(status, rollout, settle)
    if until is None or until <= now:
        return asked
    leaving = (parse_time(entry.retire_at) for entry in status.versions)
    rest = min([until, *(moment for moment in leaving if moment is not None)]) - now
    return min(rest + MARGIN, UNHURRIED) if rest > 0 else asked


def _is_calm(status: ModelDeploymentStatus) -> bool:
    """Whether no revision comes or goes beside the rollout, and the router holds the weights intended.

    A first version's route leads to it as soon as it has a subset, before it is given weight.
    """
    first = status.in_role(Role.STABLE) is None
    return all(
        entry.role in _CALM and (first or entry.weight.applied == entry.weight.intended) for entry in status.versions
    )


def _end_of_wait(status: ModelDeploymentStatus, rollout: RolloutStatus, settle: float) -> float | None:
    """When the present wait is over at the latest, in seconds since the epoch; None where nobody can tell."""
    match rollout.stage:
        case Stage.STARTING | Stage.OBSERVING:
            return parse_time(rollout.deadline)
        case Stage.EXPOSING:
            candidate = status.revision(rollout.to_revision)
            return _after(candidate.subset_at if candidate is not None else "", settle)
        case Stage.SHIFTING | Stage.PROMOTING if not rollout.weight_applied_at:
            return _after(rollout.weight_seen_at, settle)
        case _:
            return None


def _after(text: str, seconds: float) -> float | None:
    moment = parse_time(text)
    return None if moment is None else moment + seconds
