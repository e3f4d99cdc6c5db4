"""Kinds that are served in a version other than the one they are stored in."""

from __future__ import annotations

from typing import Any

from .schema import JsonDict

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}
_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


def event_to_core(event: JsonDict) -> JsonDict:
    """An events.k8s.io Event as the core Event that is stored."""
    out = {_NEW_TO_CORE.get(key, key): value for key, value in event.items()}
    defaults: dict[str, Any] = {
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    return {**defaults, **out, "apiVersion": "v1"}


def event_from_core(event: JsonDict) -> JsonDict:
    """A stored core Event as an events.k8s.io Event."""
    return {**{_CORE_TO_NEW.get(key, key): value for key, value in event.items()}, "apiVersion": "events.k8s.io/v1"}


def autoscaler_to_v2(autoscaler: JsonDict) -> JsonDict:
    """An autoscaling/v1 HorizontalPodAutoscaler as the v2 one that is stored. Metrics other than CPU are lost."""
    spec, status = dict(autoscaler.get("spec", {})), dict(autoscaler.get("status", {}))
    share = spec.pop(_TARGET, None)
    if share is not None:
        spec["metrics"] = [_cpu("target", {"type": "Utilization", "averageUtilization": share})]
    used = status.pop(_CURRENT, None)
    status["currentMetrics"] = None if used is None else [_cpu("current", {"averageUtilization": used})]
    return {**autoscaler, "apiVersion": "autoscaling/v2", "spec": spec, "status": status}


def autoscaler_from_v2(autoscaler: JsonDict) -> JsonDict:
    """A stored v2 HorizontalPodAutoscaler as autoscaling/v1 shows it."""
    spec = {key: value for key, value in autoscaler.get("spec", {}).items() if key not in ("metrics", "behavior")}
    status = {
        key: value for key, value in autoscaler.get("status", {}).items() if key not in ("currentMetrics", "conditions")
    }
    status.setdefault("currentReplicas", 0)
    share = _share(autoscaler["spec"].get("metrics"), "target")
    used = _share(autoscaler.get("status", {}).get("currentMetrics"), "current")
    if share is not None:
        spec[_TARGET] = share
    if used is not None:
        status[_CURRENT] = used
    return {**autoscaler, "apiVersion": "autoscaling/v1", "spec": spec, "status": status}


def _cpu(key: str, value: JsonDict) -> JsonDict:
    return {"type": "Resource", "resource": {"name": "cpu", key: value}}


def _share(metrics: list[JsonDict] | None, key: str) -> int | None:
    for metric in metrics or ():
        source = metric.get("resource") or {}
        if source.get("name") == "cpu":
            found: int | None = (source.get(key) or {}).get("averageUtilization")
            return found
    return None
