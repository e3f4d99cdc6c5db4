"""What the mesh counts for servers that do not count their own answers well enough, by Istio's names.

Triton has a histogram of latencies for some models only, and its Python backend counts an error that a model returns as
a success; a custom server may count nothing. The proxies in front of them, clients' sidecars, gateways and waypoints,
count every answer by the Deployment that gave it (``destination_workload``), which is the revision's name. A proxy
takes the place of a pod here: its counters are one process's, and its scrapes prove what they did not count.

https://istio.io/latest/docs/reference/config/metrics/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipway.api.samples import Quality, RevisionMetrics
from slipway.metrics.pods import BUCKETS, REQUESTS, Pace, PodMetrics
from slipway.metrics.presets import reworded, seconds_of
from slipway.metrics.revision import revision_metrics
from slipway.metrics.traces import Trace, stitch

__all__ = ["MESH_NAMES", "Workload", "by_mesh", "mesh_query", "proxies_of", "workloads_in"]

MESH_NAMES = ("istio_requests_total", "istio_request_duration_milliseconds_bucket")
_ENGINES = frozenset({"triton", "custom"})
"""Engines whose requests are counted by the mesh where it does."""
_MOST_NAMED = 100
"""Workloads that a query names one by one; beyond, it asks for every name of that form."""
_REVISION_FORM = ".+-[0-9a-f]{8}"
_SERVER_FAULTS = frozenset({"2", "4", "13", "14", "15"})
"""gRPC: UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS; they come with HTTP 200."""


@dataclass(frozen=True, slots=True, order=True)
class Workload:
    """A revision whose requests the mesh is asked for."""

    namespace: str
    model: str
    revision: str


def workloads_in(traces: Iterable[Trace]) -> frozenset[Workload]:
    """The revisions of such engines, by the labels of their scraped pods."""
    found = set()
    for trace in traces:
        labels = trace.labels
        if labels.get("slipway_dev_engine") in _ENGINES:
            names = ("namespace", "slipway_dev_model_deployment", "slipway_dev_revision")
            workload = Workload(*(labels.get(name, "") for name in names))
            if workload.namespace and workload.model and workload.revision:
                found.add(workload)
    return frozenset(found)


def mesh_query(workloads: Iterable[Workload], evidence_range: float) -> str:
    """One query for the answers of all these workloads, ``evidence_range`` seconds back."""
    names = sorted({workload.revision for workload in workloads})
    pattern = "|".join(names) if len(names) <= _MOST_NAMED else _REVISION_FORM
    return (
        f'{{__name__=~"{"|".join(MESH_NAMES)}",reporter=~"source|waypoint",destination_workload=~"{pattern}"}}'
        f"[{round(evidence_range)}s]"
    )


def proxies_of(traces: Iterable[Trace], workloads: frozenset[Workload]) -> Mapping[Workload, Sequence[PodMetrics]]:
    """The proxies by the workload in front of which they stand, their series in the runtime's words.

    A proxy that counts answers of one revision of a model is scraped for all of them.
    """
    named = {(workload.namespace, workload.revision): workload for workload in workloads}
    found: dict[Workload, dict[str, list[Trace]]] = {}
    for trace in traces:
        labels = trace.labels
        place = labels.get("destination_workload_namespace") or labels.get("destination_service_namespace", "")
        workload = named.get((place, labels.get("destination_workload", "")))
        proxy = labels.get("pod") or labels.get("instance", "")
        if workload is not None and proxy:
            found.setdefault(workload, {}).setdefault(_proxy(proxy), []).append(trace)
    scrapes: dict[tuple[str, str], dict[str, set[float]]] = {}
    for workload, proxies in found.items():
        known = scrapes.setdefault((workload.namespace, workload.model), {})
        for proxy, series in proxies.items():
            known.setdefault(proxy, set()).update(at for trace in series for at, _ in trace.samples)
    return {
        workload: tuple(
            PodMetrics(
                proxy, tuple(stitch(map(_translated, found.get(workload, {}).get(proxy, ())))), tuple(sorted(at))
            )
            for proxy, at in sorted(scrapes.get((workload.namespace, workload.model), {}).items())
        )
        for workload in workloads
    }


def _proxy(pod: str) -> str:
    return f"proxy {pod}"


def _translated(trace: Trace) -> Trace:
    if trace.name == MESH_NAMES[0]:
        fault = trace.labels.get("grpc_response_status", "") in _SERVER_FAULTS
        code = "500" if fault else trace.labels.get("response_code", "")
        return reworded(trace, REQUESTS, {"code": code}, trace.samples)
    return reworded(trace, BUCKETS, {"le": seconds_of(trace.labels.get("le", ""))}, trace.samples)


def by_mesh(own: RevisionMetrics, proxies: Sequence[PodMetrics], down: Iterable[str], pace: Pace) -> RevisionMetrics:
    """A revision's metrics with what the mesh says of its answers in place of what its servers say.

    ``down`` are pods that do not answer; a proxy among them keeps what it has counted from being known.
    """
    told = revision_metrics(own.revision, proxies, {}, frozenset(map(_proxy, down)), pace)
    # A server that answers scrapes and counts nothing says nothing of how much comes.
    counted = own.arrivals.quality in {Quality.OK, Quality.PARTIAL} and own.uncounted_pods != own.reporting_pods
    return replace(
        own,
        requests=told.requests,
        latencies=told.latencies,
        scrapes={**own.scrapes, **told.scrapes},
        served=told.served,
        error_rate=told.error_rate,
        latency_p99=told.latency_p99,
        arrivals=own.arrivals if counted else told.arrivals,
        uncounted_pods=own.uncounted_pods if counted else frozenset(),
    )
