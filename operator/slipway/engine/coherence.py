"""What cannot be true in a status, whoever wrote it: what contradicts itself is rebuilt from what runs.

Each of these states would last: the rollout machine, which never makes one, waits in it for what cannot come, or keeps
pods that nothing will ever retire.
"""

from collections import Counter
from collections.abc import Collection

from slipway.api.events import EventRecord
from slipway.api.observed import Observed
from slipway.api.status import CheckStatus, ModelDeploymentStatus, Role, Stage

__all__ = ["coherent"]


def coherent(
    status: ModelDeploymentStatus, observed: Observed, described: Collection[str]
) -> tuple[ModelDeploymentStatus, tuple[EventRecord, ...]]:
    """The status as it is; without versions and the rollout under way where they contradict each other.

    ``described`` are the revisions that the spec describes. History, counters and answers stay as they are. Evidence
    that counts what cannot be counted is gathered anew.
    """
    analysis = tuple(check for check in status.analysis if _countable(check))
    if len(analysis) < len(status.analysis):
        status = status.model_copy(update={"analysis": analysis})
    why = _contradiction(status) or _ghost(status, observed, described)
    if not why:
        return status, ()
    rollout = status.rollout
    kept = rollout if rollout is not None and rollout.stage is Stage.FINISHED else None
    text = f"status contradicts itself and is rebuilt from what runs: {why}"
    event = EventRecord("StatusUnreadable", text, "Warning")
    return status.model_copy(update={"versions": (), "rollout": kept}), (event,)


def _countable(check: CheckStatus) -> bool:
    """Whether its numbers are numbers of requests and of windows."""
    counts = (check.candidate, check.stable)
    windows = min(check.windows, check.silent_windows, check.bad_windows)
    return windows >= 0 and all(0 <= count.bad <= count.requests for count in counts)


def _contradiction(status: ModelDeploymentStatus) -> str:
    """Roles that do not fit each other or the rollout; empty where all is well.

    An entry that is missing is no contradiction: recovery finds it in what runs, and the rollout goes on.
    """
    twice = [name for name, times in Counter(entry.revision for entry in status.versions).items() if times > 1]
    if twice:
        return f"{twice[0]} stands there twice"
    roles = {entry.revision: entry.role for entry in status.versions}
    stables = [revision for revision, role in roles.items() if role is Role.STABLE]
    candidates = [revision for revision, role in roles.items() if role is Role.CANDIDATE]
    if len(stables) > 1:
        return f"{' and '.join(stables)} are both stable"
    rollout = status.rollout
    if rollout is None or rollout.stage is Stage.FINISHED:
        return f"{candidates[0]} is a candidate without a rollout" if candidates else ""
    if not rollout.to_revision:
        return "a rollout of nothing is under way"
    for revision, role, others in (
        (rollout.to_revision, Role.CANDIDATE, candidates),
        (rollout.from_revision, Role.STABLE, stables),
    ):
        found = roles.get(revision, role)
        if found is not role or others not in ([], [revision]):
            named = " and ".join(others) or "none"
            return (
                f"the rollout is one from {rollout.from_revision or 'none'} to {rollout.to_revision}, {role}: {named}"
            )
    return ""


def _ghost(status: ModelDeploymentStatus, observed: Observed, described: Collection[str]) -> str:
    """A revision in charge of which nothing exists and that nothing describes; empty without one."""
    for entry in status.versions:
        in_charge = entry.role in (Role.STABLE, Role.CANDIDATE)
        if in_charge and entry.revision not in observed.revisions and entry.revision not in described:
            return f"there is no {entry.revision[:63]}"
    return ""
