"""Whether metrics speak for all pods: a ready pod that nobody scrapes makes every sum and mean a part of the truth."""

from dataclasses import fields, replace
from typing import Any

from slipway.api.observed import PodView
from slipway.api.samples import Quality, RevisionMetrics, Sample
from slipway.scaling.request import ScalingRequest

__all__ = ["covered"]

NOTICED_AFTER = 60.0
"""Seconds after which a ready pod must have been scraped."""


def covered(request: ScalingRequest) -> ScalingRequest:
    """The request with samples marked as partial where pods are missing from the metrics."""
    reporting = request.metrics.reporting_pods
    if not reporting:
        # Then no sample is OK, or the metrics do not come from pods.
        return request
    unseen = sorted(pod.name for pod in request.view.pods if _due(pod, request.now) and pod.name not in reporting)
    if not unseen:
        return request
    ready = request.view.ready
    reason = f"{len(unseen)} of {ready} ready pods are not scraped, such as {unseen[0]}"
    return replace(
        request,
        metrics=_marked(request.metrics, reason),
        total_arrivals=_partial(request.total_arrivals, reason),
    )


def _due(pod: PodView, now: float) -> bool:
    return pod.ready and not pod.terminating and pod.ready_at is not None and now - pod.ready_at > NOTICED_AFTER


def _marked(metrics: RevisionMetrics, reason: str) -> RevisionMetrics:
    values: dict[str, Any] = {field.name: getattr(metrics, field.name) for field in fields(metrics)}
    for name, value in values.items():
        if isinstance(value, Sample):
            values[name] = _partial(value, reason)
    return replace(metrics, **values)


def _partial(sample: Sample, reason: str) -> Sample:
    return replace(sample, quality=Quality.PARTIAL, reason=reason) if sample.ok else sample
