"""Builders of scaling requests: a revision with ready pods and healthy metrics, varied by keyword."""

import json
from typing import Any

from slipway.api.autoscaling import Autoscaling
from slipway.api.observed import PodView, RevisionView
from slipway.api.samples import Quality, RevisionMetrics, Sample
from slipway.api.status import Role, VersionStatus
from slipway.api.timestamps import format_time
from slipway.scaling import ScalingRequest, ScalingResult, decide

NOW = 1_750_000_000.0
REVISION = "sentiment-v1-6c9f0d2b"


def sample(value: float) -> Sample:
    return Sample(value, Quality.OK, NOW)


def bad(quality: Quality, value: float = 0.0) -> Sample:
    return Sample(value, quality, NOW)


def pod(number: int, **fields: Any) -> PodView:
    """A pod that has been ready for an hour, after a start of 20 seconds."""
    settings: dict[str, Any] = {"created_at": NOW - 3620, "ready": True, "ready_at": NOW - 3600}
    return PodView(name=f"{REVISION}-abc-{number:05d}", **(settings | fields))


def starting(number: int, age: float = 10.0, **fields: Any) -> PodView:
    """A pod that is not ready yet."""
    return PodView(name=f"{REVISION}-abc-{number:05d}", created_at=NOW - age, **fields)


def stuck(number: int, age: float = 300.0) -> PodView:
    """A pod without a place in the cluster."""
    return starting(number, age, unschedulable=True, unschedulable_since=NOW - age)


def view(*pods: PodView, **fields: Any) -> RevisionView:
    return RevisionView(REVISION, "v1", exists=True, replicas=len(pods), pods=pods, **fields)


def metrics(
    gpu: float | Sample | None = None,
    *,
    arrivals: float | Sample | None = None,
    queue: float | Sample | None = None,
    memory: float | Sample | None = None,
    in_flight: float | Sample | None = None,
    depth: float | None = None,
) -> RevisionMetrics:
    def typed(value: float | Sample | None) -> Sample:
        if isinstance(value, Sample):
            return value
        return Sample() if value is None else sample(value)

    return RevisionMetrics(
        REVISION,
        arrivals=typed(arrivals),
        in_flight=typed(in_flight),
        queue_time=typed(queue),
        queue_depth=typed(depth),
        gpu_utilization=typed(gpu),
        gpu_source="dcgm" if gpu is not None else "",
        gpu_memory=typed(memory),
    )


def autoscaling(**settings: Any) -> Autoscaling:
    """Settings in their JSON form; qps.target 60 and a maximum of 20 unless said otherwise."""
    defaults: dict[str, Any] = {"maxReplicas": 20, "qps": {"target": 60}}
    return Autoscaling.model_validate(defaults | settings)


def entry(replicas: int, **fields: Any) -> VersionStatus:
    settings: dict[str, Any] = {"role": Role.STABLE}
    return VersionStatus(name="v1", revision=REVISION, replicas=replicas, **(settings | fields))


def request(
    replicas: int, total: float | Sample | None = None, *, settings: Autoscaling | None = None, **fields: Any
) -> ScalingRequest:
    """A request for a revision with ``replicas`` ready pods and ``total`` requests per second in all."""
    arrivals = total if isinstance(total, Sample) else (Sample() if total is None else sample(total))
    values: dict[str, Any] = {
        "spec_replicas": 1,
        "entry": entry(replicas),
        "view": view(*(pod(number) for number in range(replicas))),
        "metrics": metrics(),
        "share": 1.0,
        "floor": 0,
        "minimum": 1,
        "hold_down": "",
        "now": NOW,
    }
    return ScalingRequest(autoscaling=settings or autoscaling(), total_arrivals=arrivals, **(values | fields))


def long_low(plan: int, length: float = 400.0) -> tuple[dict[str, Any], ...]:
    """Plans that asked for few replicas for longer than the default window, in their JSON form."""
    times = [NOW - length + step * 25.0 for step in range(int(length // 25.0) + 1)]
    return tuple({"at": format_time(at), "replicas": plan} for at in times)


def round_trip(status: VersionStatus) -> VersionStatus:
    """The entry as a restarted operator reads it."""
    return VersionStatus.model_validate(json.loads(json.dumps(status.to_wire())))


def outcome(result: ScalingResult) -> tuple[int, str]:
    return result.replicas, result.reason


__all__ = [
    "NOW",
    "REVISION",
    "autoscaling",
    "bad",
    "decide",
    "entry",
    "long_low",
    "metrics",
    "outcome",
    "pod",
    "request",
    "round_trip",
    "sample",
    "starting",
    "stuck",
    "view",
]
