"""What a wall clock that was put back leaves behind: moments in a status that have not come yet.

Waits that count from such a moment would last as long as the clock was wrong, and evidence of windows that lie ahead
would be gathered a second time. Moments that are meant to lie ahead, deadlines and retirements, are left as they are.
"""

from slipway.api.events import EventRecord
from slipway.api.status import CheckStatus, ModelDeploymentStatus, RolloutStatus, VersionStatus
from slipway.api.timestamps import format_time, parse_time

__all__ = ["SKEW", "with_past_moments"]

SKEW = 5.0
"""Seconds by which clocks of two leaders may differ without anybody's having been put back."""

_ROLLOUT = ("stage_at", "step_started_at", "weight_written_at", "weight_seen_at", "weight_applied_at", "evidence_from")


def with_past_moments(
    status: ModelDeploymentStatus, now: float
) -> tuple[ModelDeploymentStatus, tuple[EventRecord, ...]]:
    """The status with every past moment at ``now`` (seconds since the epoch) at the latest.

    Where the clock was put back by more than :data:`SKEW`, the evidence of the present rollout is begun anew.
    """
    versions = tuple(_version(entry, now) for entry in status.versions)
    rollout = _rollout(status.rollout, now) if status.rollout is not None else None
    analysis = tuple(check for check in status.analysis if not _ahead(check.window, now, SKEW))
    if (versions, rollout, analysis) == (status.versions, status.rollout, status.analysis):
        return status, ()
    changed = status.model_copy(update={"versions": versions, "rollout": rollout, "analysis": analysis})
    if len(analysis) == len(status.analysis):
        return changed, ()
    text = f"the clock says {format_time(now)}, before {_last(status.analysis)}: evidence is gathered anew"
    return changed, (EventRecord("ClockWentBack", text, "Warning"),)


def _last(checks: tuple[CheckStatus, ...]) -> str:
    return max(check.window for check in checks)


def _rollout(rollout: RolloutStatus, now: float) -> RolloutStatus:
    ahead = {name: format_time(now) for name in _ROLLOUT if _ahead(getattr(rollout, name), now)}
    return rollout.model_copy(update=ahead) if ahead else rollout


def _version(entry: VersionStatus, now: float) -> VersionStatus:
    # A subset that was led to is known to the mesh; its age is of no more use.
    names = ("scaled_at", "gpu_hours_at") if entry.weight.applied > 0 else ("scaled_at", "gpu_hours_at", "subset_at")
    ahead = {name: format_time(now) for name in names if _ahead(getattr(entry, name), now)}
    return entry.model_copy(update=ahead) if ahead else entry


def _ahead(moment: str, now: float, by: float = 0.0) -> bool:
    at = parse_time(moment)
    return at is not None and at > now + by
