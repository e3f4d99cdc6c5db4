"""What controllers want to know of a pod."""

from __future__ import annotations

from datetime import datetime

from .client import Obj
from .times import seconds_since


def condition(obj: Obj, kind: str) -> Obj | None:
    """A status condition by type, or None."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry["type"] == kind:
            return entry  # type: ignore[no-any-return]
    return None


def is_terminating(pod: Obj) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def phase(pod: Obj) -> str:
    """The pod's phase; a pod without status is Pending."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_finished(pod: Obj) -> bool:
    """Whether the pod has run to its end, well or badly."""
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Obj) -> bool:
    """Whether the pod counts as a replica: neither finished nor being deleted."""
    return not is_finished(pod) and not is_terminating(pod)


def is_ready(pod: Obj) -> bool:
    """Whether the pod's Ready condition is True."""
    ready = condition(pod, "Ready")
    return ready is not None and ready["status"] == "True"


def seconds_until_available(pod: Obj, min_ready_seconds: int, moment: datetime) -> float | None:
    """0 when available, None when not ready, else the seconds still to wait."""
    ready = condition(pod, "Ready")
    if ready is None or ready["status"] != "True":
        return None
    if min_ready_seconds <= 0:
        return 0.0
    return max(0.0, min_ready_seconds - seconds_since(ready.get("lastTransitionTime"), moment))


def restarts(pod: Obj) -> int:
    """The largest restart count among the containers."""
    return max((s.get("restartCount", 0) for s in (pod.get("status") or {}).get("containerStatuses") or ()), default=0)
