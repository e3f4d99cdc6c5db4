"""The status under construction during one decision, and the events and floors that go with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from slipway.api.events import EventRecord
from slipway.api.status import (
    HistoryEntry,
    ModelDeploymentStatus,
    Outcome,
    Role,
    RolloutStatus,
    Stage,
    VersionStatus,
)
from slipway.api.timestamps import format_time, parse_time

__all__ = ["HISTORY_LENGTH", "Draft"]

HISTORY_LENGTH = 20


@dataclass
class Draft:
    """A mutable copy of the parts of a status that a rollout changes."""

    now: float
    entries: dict[str, VersionStatus]
    rollout: RolloutStatus | None
    history: list[HistoryEntry]
    rollouts: int
    events: list[EventRecord] = field(default_factory=list)
    floors: dict[str, int] = field(default_factory=dict)
    """Replicas that the rollout needs per revision, whatever the load."""
    caps: dict[str, int] = field(default_factory=dict)
    """Most replicas that the rollout leaves to a revision, whatever the load."""
    granted: dict[str, int] = field(default_factory=dict)
    """Weights of experiments, in per cent."""
    moving: bool = False
    """Whether an experiment is on its way in or out."""

    @classmethod
    def of(cls, status: ModelDeploymentStatus, now: float) -> "Draft":
        """Start from what is written."""
        return cls(
            now=now,
            entries={entry.revision: entry for entry in status.versions},
            rollout=status.rollout,
            history=list(status.history),
            rollouts=status.rollouts,
        )

    @property
    def active(self) -> bool:
        """Whether a rollout is under way, forwards or back."""
        return self.rollout is not None and self.rollout.stage is not Stage.FINISHED

    @property
    def room(self) -> int:
        """Per cent of all traffic that experiments leave to stable and candidate."""
        return 100 - sum(self.granted.values())

    def in_role(self, role: Role) -> VersionStatus | None:
        """The first entry in a role."""
        return next((entry for entry in self.entries.values() if entry.role is role), None)

    def update(self, revision: str, **changes: Any) -> VersionStatus:
        """Change fields of an entry."""
        self.entries[revision] = self.entries[revision].model_copy(update=changes)
        return self.entries[revision]

    def set_weight(self, revision: str, weight: int) -> None:
        """Set an intended weight."""
        entry = self.entries[revision]
        self.update(revision, weight=entry.weight.model_copy(update={"intended": weight}))

    def set_rollout(self, **changes: Any) -> RolloutStatus:
        """Change fields of the rollout."""
        if self.rollout is None:
            raise ValueError("there is no rollout to change")
        self.rollout = self.rollout.model_copy(update=changes)
        return self.rollout

    def enter(self, stage: Stage, reason: str, message: str, **changes: Any) -> RolloutStatus:
        """Enter a stage: its wait begins now."""
        return self.set_rollout(stage=stage, stage_at=format_time(self.now), reason=reason, message=message, **changes)

    def wait(self, reason: str, message: str, deadline: float | None) -> None:
        """Say what the present stage waits for."""
        text = format_time(deadline) if deadline is not None else ""
        self.set_rollout(reason=reason, message=message, deadline=text)

    def emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Ask for an Event."""
        self.events.append(EventRecord(reason, message, "Warning" if warning else "Normal"))

    def finish(self, evidence: str = "") -> None:
        """Close the rollout and write it into the history."""
        rollout = self.set_rollout(stage=Stage.FINISHED, stage_at=format_time(self.now), deadline="")
        outcome = rollout.outcome or Outcome.FAILED
        self.history.append(
            HistoryEntry(
                id=rollout.id,
                from_=rollout.from_,
                to=rollout.to,
                outcome=outcome,
                started_at=rollout.started_at,
                finished_at=format_time(self.now),
                by=rollout.by,
                evidence=evidence or rollout.message,
            )
        )
        self.history = self.history[-HISTORY_LENGTH:]

    def since(self, text: str) -> float:
        """Seconds since a time of the status; 0 when it is unset."""
        at = parse_time(text)
        return 0.0 if at is None else self.now - at

    def all_weights(self) -> Iterable[tuple[str, int]]:
        """Intended weights by revision."""
        return ((entry.revision, entry.weight.intended) for entry in self.entries.values())
