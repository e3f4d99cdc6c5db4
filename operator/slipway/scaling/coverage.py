"""Whether metrics speak for all pods: a ready pod that nobody scrapes makes every sum and mean a part of the truth.

Nor do they when the GPU exporter falls silent, or when the answer comes with a warning. A cluster that has no exporter
is no fault; one that had one is.
"""

from dataclasses import fields, replace
from typing import Any, assert_never

from slipway.api.observed import PodView
from slipway.api.samples import Quality, RevisionMetrics, Sample
from slipway.scaling.request import ScalingRequest

__all__ = ["covered", "gpu_measured"]

NOTICED_AFTER = 60.0
"""Seconds after which a ready pod must have been scraped."""


def covered(request: ScalingRequest) -> ScalingRequest:
    """The request with samples marked as partial where pods or their GPUs are missing from the metrics."""
    request = _whole(_without_exporter(request))
    reporting = request.metrics.reporting_pods
    if not reporting:
        # Then no sample is OK, or the metrics do not come from pods.
        return request
    unseen = sorted(pod.name for pod in request.view.pods if _due(pod, request.now) and pod.name not in reporting)
    if not unseen:
        return request
    ready = request.view.ready
    reason = f"{len(unseen)} of {ready} ready pods are not scraped, such as {unseen[0]}"
    metrics = _marked(request.metrics, reason)
    # A mean over some is a lower bound for all only if the others count as idle.
    seen = len(reporting) / (len(reporting) + len(unseen))
    utilization = replace(metrics.gpu_utilization, value=seen * metrics.gpu_utilization.value)
    return replace(
        request,
        metrics=replace(metrics, gpu_utilization=utilization),
        total_arrivals=_partial(request.total_arrivals, reason),
    )


def _whole(request: ScalingRequest) -> ScalingRequest:
    """The request as it is where the answer was whole, else with lower bounds: a store that is away takes its series
    along."""
    caveat = request.metrics.caveat
    if not caveat:
        return request
    reason = f"Prometheus' answer may be incomplete: {caveat}"
    total = _partial(request.total_arrivals, reason)
    return replace(request, metrics=_marked(request.metrics, reason), total_arrivals=total)


def gpu_measured(request: ScalingRequest) -> bool:
    """Whether a GPU exporter measures the revision's pods, or has done so before."""
    metrics = request.metrics
    return request.entry.gpu_exported or (metrics.gpu_exported and metrics.gpu_utilization.ok)


def _without_exporter(request: ScalingRequest) -> ScalingRequest:
    """GPU samples that may raise but not lower, once an exporter that had measured the pods names none of them.

    The server's own share of busy time goes on standing in, but what the GPU guards would say is not known.
    """
    if not request.entry.gpu_exported or request.metrics.gpu_exported:
        return request
    reason = "the GPU exporter that measured these pods no longer names them"
    metrics = request.metrics
    return replace(
        request,
        metrics=replace(
            metrics,
            gpu_utilization=_lost(metrics.gpu_utilization, reason),
            gpu_memory=_lost(metrics.gpu_memory, reason),
        ),
    )


def _lost(sample: Sample, reason: str) -> Sample:
    match sample.quality:
        case Quality.OK:
            return _partial(sample, reason)
        case Quality.MISSING:
            return replace(sample, quality=Quality.STALE, reason=reason)
        case Quality.PARTIAL | Quality.STALE | Quality.INVALID:
            return sample
    assert_never(sample.quality)


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
