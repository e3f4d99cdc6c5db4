"""The metrics of one revision, from those of its pods."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slipway.api.samples import MISSING, Quality, RevisionMetrics, Sample
from slipway.api.timestamps import whole_second
from slipway.metrics.gpu import PodGpu
from slipway.metrics.merging import largest, mean, merge, total
from slipway.metrics.pods import BUCKETS, IN_FLIGHT, QUEUE_COUNT, REQUESTS, Pace, PodMetrics, bucket_bound
from slipway.metrics.presets import CACHE_USAGE
from slipway.metrics.quantiles import quantile

__all__ = ["revision_metrics"]

NO_GPU = PodGpu()
BUSY = "slipway_executor_busy_seconds_total"
QUEUE_SUM = "slipway_queue_duration_seconds_sum"
QUEUE_DEPTH = "slipway_queue_depth"


def revision_metrics(
    revision: str, pods: Sequence[PodMetrics], gpus: Mapping[str, PodGpu], down: frozenset[str], pace: Pace
) -> RevisionMetrics:
    """Merge the pods of a revision; ``gpus`` and ``down`` (pods that do not answer) are by the pods' names.

    A pod that was not scraped lately and is not known to be down has been removed, and no longer counts.
    """
    fresh = [pod for pod in pods if pod.fresh(pace)]
    silent = tuple(sorted(pod.pod for pod in pods if not pod.fresh(pace) and pod.pod in down))
    evidence = RevisionMetrics(
        revision,
        scrapes={pod.pod: pod.scrapes for pod in pods},
        requests=tuple(series for pod in pods for series in pod.requests()),
        latencies=tuple(series for pod in pods for series in pod.latencies()),
        shadows=tuple(series for pod in pods for series in pod.shadows()),
    )
    if not fresh:
        return _all_stale(evidence, max(pod.scrapes[-1] for pod in pods))
    source, utilization = _utilization(fresh, gpus, silent, pace)
    return replace(
        evidence,
        arrivals=merge((pod.arrivals(pace) for pod in fresh), total, silent),
        served=_served(fresh, silent, pace),
        error_rate=_error_rate(fresh, silent, pace),
        latency_p99=_p99(fresh, silent, pace),
        in_flight=merge((pod.gauge(IN_FLIGHT, pace) for pod in fresh), total, silent),
        queue_depth=merge((pod.gauge(QUEUE_DEPTH, pace) for pod in fresh), total, silent),
        queue_time=_queue_time(fresh, silent, pace),
        gpu_utilization=utilization,
        gpu_source=source,
        gpu_exported=any(gpus[pod.pod].tells for pod in fresh if pod.pod in gpus),
        gpu_shared=all(gpus.get(pod.pod, NO_GPU).shared for pod in fresh),
        gpu_memory=merge((_memory(pod, gpus, pace) for pod in fresh), largest, silent),
        reporting_pods=frozenset(pod.pod for pod in fresh),
        uncounted_pods=frozenset(pod.pod for pod in fresh if not pod.counts(REQUESTS, pace)),
        pod_loads=_loads(fresh, pace),
    )


def _all_stale(evidence: RevisionMetrics, newest: float) -> RevisionMetrics:
    stale = Sample(0.0, Quality.STALE, newest, f"no pod was scraped since {whole_second(newest)}")
    return replace(
        evidence,
        arrivals=stale,
        served=stale,
        error_rate=stale,
        latency_p99=stale,
        in_flight=stale,
        queue_depth=stale,
        queue_time=stale,
        gpu_utilization=stale,
        gpu_memory=stale,
    )


def _loads(pods: Sequence[PodMetrics], pace: Pace) -> dict[str, float]:
    loads = {}
    for pod in pods:
        in_flight, waiting = pod.gauge(IN_FLIGHT, pace), pod.gauge(QUEUE_DEPTH, pace)
        if in_flight.ok:
            loads[pod.pod] = in_flight.value + (waiting.value if waiting.ok else 0.0)
    return loads


def _utilization(
    pods: Sequence[PodMetrics], gpus: Mapping[str, PodGpu], silent: Sequence[str], pace: Pace
) -> tuple[str, Sample]:
    """DCGM's word where it has one for any pod; else the share of time in which the server executed something."""
    dcgm = merge((gpus.get(pod.pod, NO_GPU).utilization for pod in pods), mean, silent)
    if dcgm.quality in {Quality.OK, Quality.PARTIAL}:
        return "dcgm", dcgm
    busy = merge((_busy(pod, pace) for pod in pods), mean, silent)
    if busy.quality in {Quality.OK, Quality.PARTIAL} or dcgm.quality is Quality.MISSING:
        return "executor-busy", busy
    return "dcgm", dcgm


def _busy(pod: PodMetrics, pace: Pace) -> Sample:
    if next(pod.named(BUSY), None) is None:
        return Sample(reason=f"{pod.pod} exports no {BUSY}")
    share = pod.rate(BUSY, pace)
    return replace(share, value=min(100 * share.value, 100.0)) if share.ok else share


def _memory(pod: PodMetrics, gpus: Mapping[str, PodGpu], pace: Pace) -> Sample:
    """Per cent; of the key-value cache where a server has one, since it holds all memory from its start.

    The fullest counts: some releases export it by two names, and a pod may run several engines.
    """
    if next(pod.named(CACHE_USAGE), None) is None:
        return gpus.get(pod.pod, NO_GPU).memory
    share = pod.gauge(CACHE_USAGE, pace, max)
    return replace(share, value=100 * share.value) if share.ok else share


def _served(pods: Sequence[PodMetrics], silent: Sequence[str], pace: Pace) -> Sample:
    """Requests per second that were answered with 2xx: what servers do, apart from what they turn away."""
    return merge((_answered(pod, pace) for pod in pods), total, silent)


def _answered(pod: PodMetrics, pace: Pace) -> Sample:
    everything, span = pod.rate(REQUESTS, pace), pod.span(pace)
    if not everything.ok or span is None:
        return everything
    good = (trace for trace in pod.named(REQUESTS) if trace.labels.get("code", "").startswith("2"))
    amount = sum(increase.amount for trace in good for increase in pod.within(trace, pace))
    return replace(everything, value=amount / (span[1] - span[0]))


def _error_rate(pods: Sequence[PodMetrics], silent: Sequence[str], pace: Pace) -> Sample:
    requests = merge((pod.gained(REQUESTS, pace) for pod in pods), total, silent)
    if requests.quality not in {Quality.OK, Quality.PARTIAL}:
        return requests
    if not requests.value:
        return Sample(0.0, Quality.MISSING, requests.at, "no requests")
    errors = sum(
        increase.amount
        for pod in pods
        for trace in pod.named(REQUESTS)
        if trace.labels.get("code", "").startswith("5")
        for increase in pod.within(trace, pace)
    )
    return replace(requests, value=errors / requests.value)


def _queue_time(pods: Sequence[PodMetrics], silent: Sequence[str], pace: Pace) -> Sample:
    """Mean wait in seconds; 0 where servers are alive and nothing was queued."""
    if not any(next(pod.named(QUEUE_COUNT), None) for pod in pods):
        return replace(MISSING, reason=f"no pod exports {QUEUE_COUNT}")
    waits = merge((_companion(pod, QUEUE_COUNT, REQUESTS, pace) for pod in pods), total, silent)
    seconds = merge((_companion(pod, QUEUE_SUM, QUEUE_COUNT, pace) for pod in pods), total, silent)
    if waits.quality not in {Quality.OK, Quality.PARTIAL} or not waits.value:
        return waits
    worse = waits if seconds.ok else seconds
    return replace(worse, value=seconds.value / waits.value)


def _companion(pod: PodMetrics, name: str, other: str, pace: Pace) -> Sample:
    """What a counter gained; stale where its pod does not export it, though another says that it has to grow."""
    gained = pod.gained(name, pace)
    if gained.ok and not pod.counts(name, pace) and pod.gained(other, pace).value > 0:
        return Sample(0.0, Quality.STALE, gained.at, f"{pod.pod} exports {other} and no {name}")
    return gained


def _p99(pods: Sequence[PodMetrics], silent: Sequence[str], pace: Pace) -> Sample:
    buckets: dict[float, float] = {}
    for pod in pods:
        for trace in pod.named(BUCKETS):
            bound = bucket_bound(trace)
            if bound is None:
                continue
            gained = sum(increase.amount for increase in pod.within(trace, pace))
            buckets[bound] = buckets.get(bound, 0.0) + gained
    value = quantile(buckets, 0.99)
    newest = max(pod.scrapes[-1] for pod in pods)
    if value is None:
        return Sample(0.0, Quality.MISSING, newest, "no requests")
    reason = f"no answer from {', '.join(silent)}" if silent else ""
    return Sample(value, Quality.PARTIAL if silent else Quality.OK, newest, reason)
