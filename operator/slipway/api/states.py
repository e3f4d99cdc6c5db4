"""The words of a status: phases, stages, roles, outcomes, verdicts, and what people may ask for."""

from enum import StrEnum

__all__ = [
    "ActionResult",
    "ConditionType",
    "Outcome",
    "Phase",
    "Role",
    "Stage",
    "Verb",
    "Verdict",
]


class Phase(StrEnum):
    """One word for the whole object."""

    PENDING = "Pending"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    PROMOTING = "Promoting"
    ROLLING_BACK = "RollingBack"
    READY = "Ready"
    DEGRADED = "Degraded"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"


class Role(StrEnum):
    """What a revision is there for."""

    STABLE = "Stable"
    CANDIDATE = "Candidate"
    PREVIOUS = "Previous"
    RETIRING = "Retiring"
    EXPERIMENT = "Experiment"


class Stage(StrEnum):
    """Where a rollout stands inside its step; each stage waits for one thing."""

    STARTING = "Starting"
    """The candidate's pods start, warm up and give their goldens."""
    EXPOSING = "Exposing"
    """The candidate's subset is written and the mesh settles."""
    SHIFTING = "Shifting"
    """A weight is written and waits to be confirmed."""
    OBSERVING = "Observing"
    """The weight is confirmed; hold and evidence run."""
    PROMOTING = "Promoting"
    """The candidate is sized for all traffic and gets it."""
    RETURNING = "Returning"
    """Weight goes back to stable."""
    FINISHED = "Finished"
    """The rollout has an outcome."""


class Outcome(StrEnum):
    """How a rollout ended."""

    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    ABORTED = "Aborted"
    SUPERSEDED = "Superseded"
    REVERTED = "Reverted"
    FAILED = "Failed"


class Verb(StrEnum):
    """What people and pipelines can ask for."""

    PROMOTE = "Promote"
    PROMOTE_FULL = "PromoteFull"
    PAUSE = "Pause"
    RESUME = "Resume"
    ABORT = "Abort"
    RETRY = "Retry"


class ActionResult(StrEnum):
    """The operator's answer to an action."""

    ACCEPTED = "Accepted"
    IGNORED = "Ignored"
    REFUSED = "Refused"


class Verdict(StrEnum):
    """What the evidence says of the candidate."""

    HARMFUL = "Harmful"
    SAFE = "Safe"
    UNDECIDED = "Undecided"


class ConditionType(StrEnum):
    """Types of conditions; Ready, Reconciling and Stalled follow kstatus."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    AVAILABLE = "Available"
    PROGRESSING = "Progressing"
    ANALYSIS = "Analysis"
    SCALING_ACTIVE = "ScalingActive"
    CAPACITY_AVAILABLE = "CapacityAvailable"
    TRAFFIC_APPLIED = "TrafficApplied"
