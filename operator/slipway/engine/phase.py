"""The one word for the whole object, and why."""

from dataclasses import dataclass
from typing import assert_never

from slipway.api.observed import Observed
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Phase, Role, RolloutStatus, Stage, VersionStatus
from slipway.api.timestamps import parse_time

__all__ = ["Blocked", "State", "state_of"]

FINAL_REASONS = frozenset(
    {
        "ArtefactNotFound",
        "ArtefactRefused",
        "BadArguments",
        "DigestMismatch",
        "GoldensFailed",
        "GoldensInvalid",
        "SignatureMismatch",
    }
)
"""Reasons that waiting does not mend: a first deployment that has one of them needs a person."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why nothing is changed at all."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class State:
    """Phase with reason and message; ``stalled`` when only a person can help."""

    phase: Phase
    reason: str
    message: str
    stalled: bool = False

    @property
    def moving(self) -> bool:
        """Whether the operator is on its way to the spec (or waits on that way)."""
        return self.phase in (
            Phase.PENDING, Phase.PROGRESSING, Phase.PAUSED, Phase.PROMOTING, Phase.ROLLING_BACK,
        ) and not self.stalled  # fmt: skip


def state_of(
    spec: ModelDeploymentSpec | None,
    status: ModelDeploymentStatus,
    observed: Observed,
    served_revision: str,
    now: float,
    blocked: Blocked | None,
) -> State:
    """The state of the whole object. ``served_revision`` is the revision that the spec wants in production."""
    if blocked is not None:
        if blocked.reason == "Suspended":
            return State(Phase.SUSPENDED, blocked.reason, blocked.message)
        return State(Phase.STALLED, blocked.reason, blocked.message, stalled=True)
    rollout, stable = status.rollout, status.in_role(Role.STABLE)
    if rollout is not None and rollout.stage is not Stage.FINISHED:
        return _rolling(rollout, stable, now)
    if stable is None or spec is None:
        return State(Phase.PENDING, "NotStarted", "no version serves yet")
    unavailable = _unavailable(stable, observed)
    if unavailable is not None:
        return unavailable
    if stable.revision != served_revision and rollout is not None:
        outcome = rollout.outcome.value if rollout.outcome else "Failed"
        message = f"rollout of {rollout.to} ended: {outcome}: {rollout.reason}: {rollout.message}"
        return State(Phase.STALLED, outcome, message, stalled=True)
    late = [entry.name for entry in status.versions if entry.weight.applied != entry.weight.intended]
    if stable.weight.applied == 0 or late:
        names = ", ".join(late or [stable.name])
        return State(Phase.PENDING, "WaitingForMesh", f"the router does not hold the weight of {names} yet")
    lost = next((entry for entry in status.versions if entry.reason == "RevisionLost"), None)
    if lost is not None:
        return State(Phase.DEGRADED, lost.reason, f"{lost.name}: {lost.message}")
    return _ready(status, stable)


def _ready(status: ModelDeploymentStatus, stable: VersionStatus) -> State:
    """What is wanted holds; an experiment that has yet to come is no reason to call production unready."""
    if stable.weight.applied == 100:
        return State(Phase.READY, "Ready", f"{stable.name} serves all traffic")
    others = [entry for entry in status.versions if entry.weight.applied > 0 and entry is not stable]
    names = ", ".join(f"{entry.name} {entry.weight.applied} %" for entry in others)
    return State(Phase.READY, "Ready", f"{stable.name} serves all traffic but that of experiments ({names})")


def _unavailable(stable: VersionStatus, observed: Observed) -> State | None:
    if stable.replicas == 0 or stable.ready_replicas > 0:
        return None
    pods = observed.of(stable.revision).pods
    trouble = next((pod for pod in pods if pod.failing or pod.unschedulable), None)
    detail = f": {trouble.waiting_reason or trouble.message}" if trouble else ""
    return State(Phase.DEGRADED, "NoReadyPods", f"no pod of {stable.name} is ready{detail}")


def _rolling(rollout: RolloutStatus, stable: VersionStatus | None, now: float) -> State:
    deadline = parse_time(rollout.deadline)
    late = deadline is not None and now > deadline
    reason, message = rollout.reason or rollout.stage.value, rollout.message
    if rollout.outcome is not None:
        return State(Phase.ROLLING_BACK, reason, message, stalled=late)
    if stable is None:
        final = reason in FINAL_REASONS
        stalled = late or final or reason == "ProgressDeadlineExceeded"
        return State(Phase.STALLED if stalled else Phase.PENDING, reason, message, stalled=stalled)
    match rollout.stage:
        case Stage.PROMOTING:
            phase = Phase.PROMOTING
        case Stage.RETURNING:
            phase = Phase.ROLLING_BACK
        case Stage.STARTING | Stage.EXPOSING | Stage.SHIFTING | Stage.OBSERVING | Stage.FINISHED:
            phase = Phase.PROGRESSING
        case unreachable:
            assert_never(unreachable)
    waits_for_somebody = rollout.paused or reason in ("AwaitingPromotion", "Inconclusive")
    if waits_for_somebody:
        return State(Phase.PAUSED, reason, message, stalled=late)
    return State(phase, reason, message)
