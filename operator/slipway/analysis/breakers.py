"""Hard breakers: failures so plain that no statistics are waited for. Most of them need no metrics at all."""

from enum import StrEnum

from slipway.api.counters import increases, scrape_times
from slipway.api.judgement import Judgement
from slipway.api.observed import PodView, RevisionView
from slipway.api.samples import RevisionMetrics
from slipway.api.scalars import format_duration
from slipway.api.status import Verdict

__all__ = ["Breaker", "tripped"]

CRASH_RESTARTS = 2
"""Restarts after which a pod that waits for the next one is in a crash loop."""
UNREADY_RESTARTS = 3
"""Restarts after which a pod that is not ready is in a crash loop, even while its server runs."""
IMAGE_PATIENCE = 120.0
"""Seconds that a pod may fail to get its image or configuration."""
READINESS_PATIENCE = 30.0
"""Seconds that a candidate with weight may be without a ready pod."""
BURST_REQUESTS = 20
BURST_SHARE = 0.5
BURST_SECONDS = 60.0


class Breaker(StrEnum):
    """Reason codes of hard breakers."""

    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    IMAGE_ERROR = "ImageError"
    READINESS_LOST = "ReadinessLost"
    ERROR_BURST = "ErrorBurst"


def tripped(
    view: RevisionView, candidate_metrics: RevisionMetrics, *, since: float | None, now: float
) -> Judgement | None:
    """The first hard breaker that trips on a candidate, or None.

    ``since`` (seconds since the epoch) is when the candidate's first weight was confirmed in this rollout, None before:
    lost readiness and bursts of errors count only from then on. Breakers on pods work without metrics.
    """
    pods = tuple(pod for pod in view.pods if not pod.terminating)
    return (
        _crash_loop(pods)
        or _out_of_memory(pods, since)
        or _image_error(pods, now)
        or (_readiness_lost(view, pods, since, now) if since is not None else None)
        or (_error_burst(candidate_metrics, since, now) if since is not None else None)
    )


def _crash_loop(pods: tuple[PodView, ...]) -> Judgement | None:
    for pod in pods:
        waiting = pod.waiting_reason == "CrashLoopBackOff" and pod.restarts >= CRASH_RESTARTS
        if waiting or (pod.restarts >= UNREADY_RESTARTS and not pod.ready):
            ended = f"{pod.terminated_reason or 'ended'}, exit code {pod.exit_code}"
            breaker = Breaker.OUT_OF_MEMORY if pod.out_of_memory else Breaker.CRASH_LOOP
            return _trip(breaker, f"pod {pod.name} restarted {pod.restarts} times ({ended}) {pod.message}")
    return None


def _out_of_memory(pods: tuple[PodView, ...], since: float | None) -> Judgement | None:
    """One kill suffices, unless the pod has been ready since before this rollout gave it weight."""
    for pod in pods:
        old = pod.ready and since is not None and pod.ready_at is not None and pod.ready_at < since
        if pod.out_of_memory and not old:
            return _trip(Breaker.OUT_OF_MEMORY, f"pod {pod.name} ran out of memory; raise its memory limit")
    return None


def _image_error(pods: tuple[PodView, ...], now: float) -> Judgement | None:
    """No pod is ready, and one has been unable to start for a while; ready pods go on without it."""
    if any(pod.ready for pod in pods):
        return None
    for pod in pods:
        cannot_start = pod.failing and pod.waiting_reason != "CrashLoopBackOff"
        if cannot_start and now - pod.created_at > IMAGE_PATIENCE:
            return _trip(Breaker.IMAGE_ERROR, f"pod {pod.name} cannot start: {pod.waiting_reason} {pod.message}")
    return None


def _readiness_lost(view: RevisionView, pods: tuple[PodView, ...], since: float, now: float) -> Judgement | None:
    if view.ready or not view.replicas:
        return None
    changes = [pod.created_at if pod.unready_since is None else pod.unready_since for pod in pods if not pod.ready]
    lost = max([since, *changes])
    if now - lost <= READINESS_PATIENCE:
        return None
    message = f"none of {len(pods)} pods has been ready for {format_duration(now - lost)}"
    return _trip(Breaker.READINESS_LOST, message)


def _error_burst(metrics: RevisionMetrics, since: float, now: float) -> Judgement | None:
    begin = max(since, now - BURST_SECONDS)
    scrapes = scrape_times(metrics)
    requests = errors = 0.0
    for series in metrics.requests:
        # A pod without an earlier scrape has no baseline here: coverage is not known for one revision alone.
        for increase in increases(series.samples, scrapes[series.pod], float("inf"), 0.0):
            if increase.at > begin and increase.since >= since:
                requests += increase.amount
                errors += increase.amount if series.code.startswith("5") else 0.0
    if requests < BURST_REQUESTS or errors < BURST_SHARE * requests:
        return None
    message = f"{round(errors)} of {round(requests)} requests failed within {format_duration(now - begin)}"
    return _trip(Breaker.ERROR_BURST, message)


def _trip(breaker: Breaker, message: str) -> Judgement:
    return Judgement(Verdict.HARMFUL, breaker, message.strip())
