"""Cold starts learned from the pods, and the GPU hours that pods have used."""

import math
from collections.abc import Sequence

from slipway.api.observed import PodView, RevisionView
from slipway.api.scalars import DecimalString, format_duration
from slipway.api.status import ColdStart, VersionStatus
from slipway.api.timestamps import format_time, parse_time

__all__ = ["learned", "slow_start", "with_gpu_hours"]

SAMPLES = 20
COUNTED = 256
LONGEST_WAIT = 600.0
"""Seconds of waiting for a place that count as start: a cluster autoscaler brings a node by then. A longer wait says
that there was none to be had; counted, it would hold replicas for hours and foresee load as far ahead."""
GPU_HOURS_INTERVAL = 300.0
"""Seconds between two updates of GPU hours, so that counting alone is no constant writing of status."""


def learned(cold_start: ColdStart, view: RevisionView) -> ColdStart:
    """Add the starts of pods that have become ready since; each pod counts once, its first start only.

    A pod that was restarted is left out, since its readiness is not its first. Returns the same value when nothing
    was learned.
    """
    present = {_identity(pod) for pod in view.pods}
    counted = [name for name in cold_start.counted if name in present]
    fresh = [
        pod
        for pod in sorted(view.pods, key=lambda pod: (pod.ready_at or 0.0, pod.name))
        if pod.ready and pod.ready_at is not None and pod.restarts == 0 and _identity(pod) not in counted
    ][: COUNTED - len(counted)]
    if not fresh and len(counted) == len(cold_start.counted):
        return cold_start
    counted += [_identity(pod) for pod in fresh]
    starts = [round(_start(pod), 3) for pod in fresh]
    samples = (*cold_start.samples, *starts)[-SAMPLES:]
    return ColdStart(
        p50=format_duration(_percentile(samples, 0.5)) if samples else "",
        p90=format_duration(_percentile(samples, 0.9)) if samples else "",
        samples=samples,
        counted=tuple(counted),
    )


def slow_start(cold_start: ColdStart) -> float:
    """The 90th percentile of the learned starts in seconds; 0 while none is known."""
    return _percentile(cold_start.samples, 0.9) if cold_start.samples else 0.0


def with_gpu_hours(entry: VersionStatus, view: RevisionView, now: float, *, due: bool) -> VersionStatus:
    """Count the time that pods with GPUs have existed since the last count.

    Counts every few minutes, or at once when ``due`` (before pods are removed).
    """
    if not any(pod.gpus for pod in view.pods):
        return entry
    since = parse_time(entry.gpu_hours_at)
    if since is None:
        since = min(pod.created_at for pod in view.pods)
    elif now - since < GPU_HOURS_INTERVAL and not due:
        return entry
    seconds = sum(pod.gpus * max(0.0, now - max(pod.created_at, since)) for pod in view.pods if not pod.unschedulable)
    hours = (entry.gpu_hours.number if entry.gpu_hours is not None else 0.0) + seconds / 3600
    return entry.model_copy(update={"gpu_hours": DecimalString.of(hours, 12), "gpu_hours_at": format_time(now)})


def _start(pod: PodView) -> float:
    """Seconds from creation to ready; of a wait for a place only what a node may take to come."""
    started = max(0.0, (pod.ready_at or 0.0) - pod.created_at)
    waited = 0.0 if pod.scheduled_at is None else pod.scheduled_at - pod.created_at
    return max(0.0, started - max(0.0, waited - LONGEST_WAIT))


def _identity(pod: PodView) -> str:
    """The random last part of a pod's name, which tells the pods of one revision apart."""
    return pod.name.rsplit("-", 1)[-1]


def _percentile(samples: Sequence[float], quantile: float) -> float:
    """Nearest rank."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]
