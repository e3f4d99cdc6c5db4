"""Signals that were there and are gone: a metric that was renamed or dropped is a fault, one that nobody has is none.

No server has to have a queue, and a cluster of CPUs has no GPU metrics: a signal that was never seen keeps nobody from
removing replicas. One that metrics have told of a revision's pods does once it is missing, until it is back. What was
told, and since when something is gone, is in status.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slipway.api.samples import Quality, Sample
from slipway.api.status import SignalStatus
from slipway.api.timestamps import format_time, parse_time, whole_second
from slipway.scaling.request import ScalingRequest

__all__ = ["told_signals", "without_lost"]

REQUESTS = "requests"
IN_FLIGHT = "inFlight"
_FIELDS = {
    IN_FLIGHT: "in_flight",
    "queueDepth": "queue_depth",
    "queueTime": "queue_time",
    "gpuUtilization": "gpu_utilization",
    "gpuMemory": "gpu_memory",
}
"""Signals by their names in status, and the samples that they are."""
_OF_GPUS = ("gpuUtilization", "gpuMemory")
_TOLD = (Quality.OK, Quality.PARTIAL)


@dataclass(frozen=True, slots=True)
class Hearing:
    """Which signals are heard at a moment, and which ought to be."""

    told: frozenset[str]
    lost: frozenset[str]
    """Told before, and missing now."""


def told_signals(request: ScalingRequest) -> tuple[SignalStatus, ...]:
    """What to remember in status: every signal ever told, with the time since which it is gone."""
    hearing, known = _hearing(request), _known(request)
    signals = []
    for name in (REQUESTS, *_FIELDS):
        if name in hearing.told:
            signals.append(SignalStatus(name=name))
        elif name in hearing.lost:
            signals.append(SignalStatus(name=name, lost_at=known[name] or format_time(request.now)))
        elif name in known:
            signals.append(SignalStatus(name=name, lost_at=known[name]))
    return tuple(signals)


def without_lost(request: ScalingRequest) -> ScalingRequest:
    """The request with samples that may raise but not lower in place of those that are gone."""
    known = _known(request)
    for name in sorted(_hearing(request).lost):
        since = whole_second(parse_time(known[name]) or request.now)
        reason = f"{name} was told by these pods' metrics and is gone since {since}"
        if name in (REQUESTS, IN_FLIGHT):
            request = _with_arrivals_bounded(request, reason)
        if name == REQUESTS:
            # Of servers that count no requests, nobody knows whether any of them waited.
            queue_time = _bound(request.metrics.queue_time, reason)
            request = replace(request, metrics=replace(request.metrics, queue_time=queue_time))
        else:
            gone: dict[str, Any] = {_FIELDS[name]: Sample(0.0, Quality.STALE, 0.0, reason)}
            request = replace(request, metrics=replace(request.metrics, **gone))
    in_flight = request.metrics.in_flight
    return _with_arrivals_bounded(request, in_flight.reason) if in_flight.quality is Quality.PARTIAL else request


def _with_arrivals_bounded(request: ScalingRequest, reason: str) -> ScalingRequest:
    """Where some pods say nothing of requests, or of those in flight, more may come than is known."""
    return replace(
        request,
        metrics=replace(request.metrics, arrivals=_bound(request.metrics.arrivals, reason)),
        total_arrivals=_bound(request.total_arrivals, reason),
    )


def _known(request: ScalingRequest) -> Mapping[str, str]:
    return {signal.name: signal.lost_at for signal in request.entry.signals}


def _hearing(request: ScalingRequest) -> Hearing:
    metrics = request.metrics
    samples: Mapping[str, Sample] = {name: getattr(metrics, field) for name, field in _FIELDS.items()}
    told = {name for name, sample in samples.items() if sample.quality in _TOLD}
    lost = {name for name, sample in samples.items() if sample.quality is Quality.MISSING and _due(name, request)}
    if metrics.arrivals.quality in _TOLD and not _uncounted(request):
        told.add(REQUESTS)
    elif metrics.arrivals.quality is Quality.MISSING or _uncounted(request):
        lost.add(REQUESTS)
    return Hearing(frozenset(told), frozenset(lost & _known(request).keys()))


def _due(name: str, request: ScalingRequest) -> bool:
    """Whether a missing signal is its own fault: not where nothing at all is known, or nothing can be told of it."""
    metrics = request.metrics
    if metrics.arrivals.quality is Quality.MISSING and not request.total_arrivals.ok:
        return False
    if name == "queueTime" and metrics.arrivals.ok and metrics.arrivals.value == 0 and not _uncounted(request):
        # Some servers count waits from the first request on.
        return False
    return not (name in _OF_GPUS and metrics.gpu_shared)


def _uncounted(request: ScalingRequest) -> bool:
    uncounted = request.metrics.uncounted_pods
    return any(pod.name in uncounted for pod in request.view.pods if pod.ready and not pod.terminating)


def _bound(sample: Sample, reason: str) -> Sample:
    return replace(sample, quality=Quality.PARTIAL, reason=reason) if sample.ok else sample
