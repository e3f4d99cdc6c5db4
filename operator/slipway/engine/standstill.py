"""An object for which nothing is changed: suspended, invalid or in conflict. Its status goes on telling what is."""

from slipway.api.observed import Observed
from slipway.api.samples import MetricsView
from slipway.api.status import ActionResult, LastAction, ModelDeploymentStatus, VersionStatus
from slipway.api.timestamps import format_time
from slipway.engine.display import with_display
from slipway.engine.phase import Blocked
from slipway.rollout.actions import MEMORY

__all__ = ["at_standstill"]


def at_standstill(
    status: ModelDeploymentStatus, observed: Observed, metrics: MetricsView, blocked: Blocked, now: float
) -> ModelDeploymentStatus:
    """The status with ready pods and applied weights as they are, and an action refused rather than kept for later.

    Who asks for an abort has to hear that it does not happen; done hours later it would surprise.
    """
    entries = tuple(_seen(entry, observed) for entry in status.versions)
    return _answered(with_display(status.model_copy(update={"versions": entries}), observed, metrics), blocked, now)


def _seen(entry: VersionStatus, observed: Observed) -> VersionStatus:
    applied = observed.traffic.weights.get(entry.revision, 0)
    return entry.model_copy(
        update={
            "ready_replicas": observed.of(entry.revision).ready,
            "weight": entry.weight.model_copy(update={"applied": applied}),
        }
    )


def _answered(status: ModelDeploymentStatus, blocked: Blocked, now: float) -> ModelDeploymentStatus:
    action = status.action
    if not action.id or action.id == status.last_action.id:
        return status
    answer = LastAction(
        id=action.id,
        verb=action.verb,
        result=ActionResult.REFUSED.value,
        message=f"nothing is changed at present; ask again later. {blocked.reason}: {blocked.message}",
        at=format_time(now),
    )
    answered = status.answered if action.id in status.answered else (*status.answered, action.id)[-MEMORY:]
    return status.model_copy(update={"last_action": answer, "answered": answered})
