"""The HorizontalPodAutoscaler of mode HPA, over metrics of prometheus-adapter (its rules: docs/scaling.md).

Demand is an External metric with an AverageValue: the total over the revision divided by the target. A mean over pods
multiplied by their number would run away while new pods start. GPU utilisation is a metric of pods.
"""

from collections.abc import Iterator
from typing import Any

from slipway.api.autoscaling import Autoscaling
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Stage, VersionStatus
from slipway.resources.identity import Identity, metadata, revision_labels

__all__ = ["horizontal_pod_autoscaler"]

DEFAULT_TOLERANCE = 0.1
"""The controller's own; another one is a field that older clusters drop."""
LONGEST_WINDOW = 3600
"""Seconds that the API allows for stabilisation."""
LONGEST_PERIOD = 1800
"""Seconds that the API allows between two steps."""
UP_PERIOD = 60
"""Seconds between two steps up."""


def horizontal_pod_autoscaler(
    identity: Identity, spec: ModelDeploymentSpec, status: ModelDeploymentStatus, entry: VersionStatus
) -> dict[str, Any]:
    """The autoscaler of a live revision.

    Its minimum is what the rollout and the schedule need (``entry.floor``); during a rollout it removes nothing.
    """
    scaling = spec.autoscaling
    rolling = status.rollout is not None and status.rollout.stage is not Stage.FINISHED
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(identity, entry.revision, revision_labels(identity, entry.name, entry.revision)),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": entry.revision},
            "minReplicas": min(max(entry.floor, 1), scaling.max_replicas),
            "maxReplicas": scaling.max_replicas,
            "metrics": list(_metrics(scaling, entry.revision)),
            "behavior": {"scaleUp": _up(scaling), "scaleDown": _down(scaling, rolling=rolling)},
        },
    }


def _metrics(scaling: Autoscaling, revision: str) -> Iterator[dict[str, Any]]:
    if scaling.qps.target is not None:
        yield _external("slipway_requests_per_second", revision, scaling.qps.target)
    if scaling.concurrency.target > 0:
        yield _external("slipway_requests_in_flight", revision, scaling.concurrency.target)
    if scaling.gpu_utilization.target > 0:
        target = {"type": "AverageValue", "averageValue": _quantity(scaling.gpu_utilization.target)}
        yield {"type": "Pods", "pods": {"metric": {"name": "gpu_utilization"}, "target": target}}


def _external(name: str, revision: str, target: float) -> dict[str, Any]:
    selector = {"matchLabels": {"revision": revision}}
    value = {"type": "AverageValue", "averageValue": _quantity(target)}
    return {"type": "External", "external": {"metric": {"name": name, "selector": selector}, "target": value}}


def _up(scaling: Autoscaling) -> dict[str, Any]:
    steps = scaling.scale_up
    return {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Percent", "value": steps.max_percent, "periodSeconds": UP_PERIOD},
            {"type": "Pods", "value": steps.max_replicas, "periodSeconds": UP_PERIOD},
        ],
        **_tolerance(scaling),
    }


def _down(scaling: Autoscaling, *, rolling: bool) -> dict[str, Any]:
    period = min(max(int(scaling.cooldown.seconds), 1), LONGEST_PERIOD)
    return {
        "stabilizationWindowSeconds": min(int(scaling.stabilization_window.seconds), LONGEST_WINDOW),
        "selectPolicy": "Disabled" if rolling else "Max",
        "policies": [
            {"type": "Percent", "value": scaling.scale_down.max_percent, "periodSeconds": period},
            # One at least: a quarter of three replicas is none.
            {"type": "Pods", "value": 1, "periodSeconds": period},
        ],
        **_tolerance(scaling),
    }


def _tolerance(scaling: Autoscaling) -> dict[str, Any]:
    return {} if scaling.tolerance == DEFAULT_TOLERANCE else {"tolerance": _quantity(scaling.tolerance)}


def _quantity(number: float) -> str:
    """In the API server's own spelling, so that what is read back is what was written."""
    return f"{number:.0f}" if number == int(number) else f"{max(1, round(1000 * number))}m"
