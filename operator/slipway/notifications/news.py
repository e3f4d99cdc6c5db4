"""What is worth telling of a ModelDeployment: the transitions between two of its statuses. Pure.

A transition is named after the rollout and what happened in it, never after the moment at which it was noticed: an
operator that is restarted finds the same names for what it had told already.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slipway.api.conditions import find_condition
from slipway.api.status import (
    ActionResult,
    ConditionType,
    HistoryEntry,
    ModelDeploymentStatus,
    Outcome,
    Phase,
    Role,
    RolloutStatus,
    Stage,
    Verb,
)
from slipway.api.timestamps import parse_time

__all__ = ["News", "NewsKind", "news_between", "recent_news"]


class NewsKind(StrEnum):
    """What receivers can choose from."""

    STARTED = "Started"
    STEP = "Step"
    PAUSED = "Paused"
    ROLLED_BACK = "RolledBack"
    PROMOTED = "Promoted"
    LIMIT = "Limit"


LIMITS = frozenset({"LimitedMax", "GPUCapacityExhausted", "QuotaExceeded"})
"""Reasons of scaling that say: the load needs more replicas than there can be."""
WAITS = frozenset({"AwaitingPromotion", "Inconclusive"})
"""Reasons of a pause that nobody asked for: the step itself waits for a person."""

_ENDED = {
    Outcome.PROMOTED: "promoted",
    Outcome.ROLLED_BACK: "rolled back",
    Outcome.ABORTED: "aborted",
    Outcome.FAILED: "given up",
    Outcome.SUPERSEDED: "superseded",
    Outcome.REVERTED: "reverted",
}


@dataclass(frozen=True, slots=True)
class News:
    """One transition."""

    kind: NewsKind
    transition: str
    """Its name within the ModelDeployment, the same whenever it is derived."""
    at: str
    """When it happened, as status tells it; empty where it does not."""
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs: rollout, from, to, step, weight, outcome, reason and so on, without what is empty."""


def news_between(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    """The transitions from one status to the next, in the order in which they happened."""
    yield from _ended_before(before, after)
    yield from _started(before, after)
    yield from _step(before, after)
    yield from _paused(before, after)
    yield from _ended(before, after)
    yield from _limit(before, after)


def recent_news(status: ModelDeploymentStatus, since: float) -> Iterator[News]:
    """What a status shows to have happened at or after a time in seconds since the epoch."""
    for news in news_between(ModelDeploymentStatus(), status):
        at = parse_time(news.at)
        if at is not None and at >= since:
            yield news


def _started(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    rollout = after.rollout
    if rollout is None or (before.rollout is not None and before.rollout.id == rollout.id):
        return
    beside = f"begins beside {rollout.from_}" if rollout.from_ else "begins; it is the first version"
    text = f"rollout of {rollout.to} {beside}"
    yield News(
        NewsKind.STARTED, f"{_named(rollout.id, rollout.started_at)}/started", rollout.started_at, text, _facts(rollout)
    )


def _step(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    rollout, old = after.rollout, before.rollout
    if rollout is None or rollout.stage is not Stage.OBSERVING or rollout.step < 1:
        return
    if old is not None and (old.id, old.stage, old.step) == (rollout.id, rollout.stage, rollout.step):
        return
    weight = _weight(after)
    text = f"{rollout.to} has {weight} % of requests, step {rollout.step} of {rollout.steps}"
    again = f"-after-{rollout.step_downs}-back" if rollout.step_downs else ""
    transition = f"{_named(rollout.id, rollout.started_at)}/step-{rollout.step}{again}"
    facts = _facts(rollout, step=rollout.step, steps=rollout.steps, weight=weight)
    yield News(NewsKind.STEP, transition, rollout.step_started_at, text, facts)


def _paused(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    rollout = after.rollout
    if rollout is None or after.phase is not Phase.PAUSED:
        return
    name, at = _pause(after, rollout)
    old = before.rollout
    if before.phase is Phase.PAUSED and old is not None and _pause(before, old)[0] == name:
        return
    weight = _weight(after)
    text = f"rollout of {rollout.to} is paused at {weight} %: {_because(rollout.reason, rollout.message)}"
    facts = _facts(rollout, step=rollout.step, weight=weight, reason=rollout.reason, message=rollout.message)
    yield News(NewsKind.PAUSED, name, at, text, facts)


def _pause(status: ModelDeploymentStatus, rollout: RolloutStatus) -> tuple[str, str]:
    """The name of a pause and when it began: by the evidence, by a request, or by the step."""
    last, named = status.last_action, _named(rollout.id, rollout.started_at)
    if rollout.paused and rollout.harm_at:
        return f"{named}/paused-harm", rollout.harm_at
    if rollout.paused and last.verb == Verb.PAUSE and last.result == ActionResult.ACCEPTED:
        # Requests name themselves as they like.
        return f"{named}/paused-{hashlib.sha256(last.id.encode()).hexdigest()[:12]}", last.at
    why = rollout.reason if rollout.reason in WAITS else "paused"
    return f"{named}/step-{rollout.step}-{why}", rollout.step_started_at or rollout.stage_at


def _ended(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    """The end of the present rollout: told as soon as it is decided, traffic may take a while to go back."""
    rollout = after.rollout
    if rollout is None or rollout.outcome is None or _told(before, rollout.id):
        return
    entry = next((entry for entry in after.history if entry.id == rollout.id), None)
    if rollout.stage is Stage.FINISHED and entry is None:
        return
    present = HistoryEntry(
        id=rollout.id,
        from_=rollout.from_,
        to=rollout.to,
        outcome=entry.outcome if entry is not None else rollout.outcome,
        started_at=rollout.started_at,
        finished_at=entry.finished_at if entry is not None else rollout.stage_at,
        by=rollout.by,
        evidence=rollout.message,
    )
    yield _end(present, rollout.reason)


def _ended_before(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    """Ends of rollouts that another one has followed already."""
    present = after.rollout.id if after.rollout is not None else ""
    for entry in after.history:
        if entry.id != present and not _told(before, entry.id):
            yield _end(entry)


def _told(before: ModelDeploymentStatus, rollout: str) -> bool:
    """Whether the end of a rollout was news before."""
    old = before.rollout
    decided = old is not None and old.id == rollout and old.outcome is not None
    return decided or any(entry.id == rollout for entry in before.history)


def _end(entry: HistoryEntry, reason: str = "") -> News:
    facts = {
        "rollout": entry.id, "from": entry.from_, "to": entry.to, "outcome": entry.outcome.value,
        "reason": reason, "message": entry.evidence, "by": entry.by,
    }  # fmt: skip
    facts = {name: value for name, value in facts.items() if value}
    transition = f"{_named(entry.id, entry.started_at)}/ended"
    if entry.outcome is Outcome.PROMOTED:
        text = f"{entry.to} is promoted and serves all traffic"
        return News(NewsKind.PROMOTED, transition, entry.finished_at, text, facts)
    back = f", {entry.from_} serves" if entry.from_ else ""
    text = f"rollout of {entry.to} is {_ENDED[entry.outcome]}{back}: {_because(reason, entry.evidence)}"
    return News(NewsKind.ROLLED_BACK, transition, entry.finished_at, text, facts)


def _limit(before: ModelDeploymentStatus, after: ModelDeploymentStatus) -> Iterator[News]:
    scaling, old = (find_condition(status.conditions, ConditionType.SCALING_ACTIVE) for status in (after, before))
    if scaling is None or scaling.reason not in LIMITS or (old is not None and old.reason == scaling.reason):
        return
    stable = after.in_role(Role.STABLE)
    if stable is None:
        return
    # The last change of replicas tells apart times at the limit; what flaps without one is the same news.
    at = next((entry.at for entry in reversed(after.scaling) if entry.version == stable.name), "")
    text = f"{stable.name} is at its limit of {stable.replicas} replicas: {_because(scaling.reason, scaling.message)}"
    facts = {
        "version": stable.name, "replicas": stable.replicas, "reason": scaling.reason, "message": scaling.message,
    }  # fmt: skip
    transition = f"limit/{stable.revision}/{scaling.reason}/{at or 'start'}"
    yield News(NewsKind.LIMIT, transition, at, text, facts)


def _named(rollout: str, started_at: str) -> str:
    """The rollout with the second of its start: numbers begin anew where a status was lost or restored."""
    second = re.sub(r"[^0-9T]", "", started_at[:19])
    return f"{rollout}-{second}" if second else rollout


def _facts(rollout: RolloutStatus, **more: Any) -> dict[str, Any]:
    facts = {"rollout": rollout.id, "from": rollout.from_, "to": rollout.to, "strategy": rollout.strategy.value, **more}
    return {name: value for name, value in facts.items() if value != ""}


def _weight(status: ModelDeploymentStatus) -> int:
    candidate = status.in_role(Role.CANDIDATE)
    return candidate.weight.intended if candidate is not None else 0


def _because(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message or "no reason was given"
