"""The self-test of metrics in ``slipway explain``: each query, what it matches, the pods joined, what comes of it.

It asks Prometheus what the operator asks, so that "why does nothing scale?" is answered without guessing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipway.api.samples import MetricsView, RevisionMetrics, Sample
from slipway.api.versions import Engine
from slipway.cli.columns import table
from slipway.engine.pods import pod_view
from slipway.kube.metadata import label
from slipway.metrics import PrometheusSource
from slipway.resources.identity import ENGINE_LABEL, REVISION_LABEL

__all__ = ["signal_lines"]

SHOWN_PODS = 3
_SAMPLES = (
    ("arrivals", "/s"),
    ("in_flight", ""),
    ("queue_depth", ""),
    ("queue_time", " s"),
    ("gpu_utilization", " %"),
    ("gpu_memory", " %"),
)
"""Fields of RevisionMetrics that scaling looks at, with their units."""


async def signal_lines(
    source: PrometheusSource, namespace: str, name: str, pods: Sequence[Mapping[str, Any]], now: float
) -> list[str]:
    """Lines for one ModelDeployment; ``pods`` are its pods as the API server returned them."""
    answers = await source.answers(now)
    if isinstance(answers, str):
        return ["", "Metrics", f"  Prometheus: {answers}"]
    names = {str(pod["metadata"]["name"]) for pod in pods}
    rows = []
    matched: dict[str, Counter[str]] = {}
    for query, series in answers:
        own = [labels for item in series if _belongs(labels := item.get("metric") or {}, namespace, name, names)]
        rows.append((str(len(series)), str(len(own)), query))
        for labels in own:
            matched.setdefault(_revision_of(labels), Counter()).update([labels.get("__name__", "")])
    view = (await source.snapshot(now)).view(namespace, name)
    lines = ["", "Metrics", *_indent(table(("SERIES", "OF THIS", "QUERY"), rows))]
    by_revision: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        by_revision.setdefault(label(pod, REVISION_LABEL), []).append(pod)
    for revision in sorted({*by_revision, *view.revisions}):
        lines += _indent(_revision(view.of(revision), by_revision.get(revision, [])))
        lines += _indent(_names(matched.get(revision, Counter()), by_revision.get(revision, [])))
    gateway = view.gateway
    lines += _indent(["", f"mesh: {_told(gateway, '/s')}" if gateway.ok else "mesh: counts nothing for this Service"])
    return [*lines, *_indent(_warnings(view, by_revision))]


def _belongs(labels: Mapping[str, str], namespace: str, name: str, pods: set[str]) -> bool:
    """Whether a series speaks of the ModelDeployment, by whichever label it does."""
    if labels.get("destination_service_name") == name:
        return labels.get("destination_service_namespace") == namespace
    if labels.get("destination_workload", "").startswith(f"{name}-"):
        return labels.get("destination_workload_namespace") == namespace
    place = labels.get("exported_namespace") or labels.get("namespace", "")
    pod = labels.get("exported_pod") or labels.get("pod", "")
    return place == namespace and (labels.get("model") == name or pod in pods)


def _revision(metrics: RevisionMetrics, pods: Sequence[Mapping[str, Any]]) -> list[str]:
    ready = {view.name for view in map(pod_view, pods) if view.ready and not view.terminating}
    joined = len(ready & metrics.reporting_pods)
    lines = ["", f"{metrics.revision}: {joined} of {len(ready)} ready pods are in the metrics"]
    missing = sorted(ready - metrics.reporting_pods)
    if missing:
        more = f" and {len(missing) - SHOWN_PODS} more" if len(missing) > SHOWN_PODS else ""
        lines.append(f"  not scraped: {', '.join(missing[:SHOWN_PODS])}{more}")
    for field, unit in _SAMPLES:
        sample: Sample = getattr(metrics, field)
        source = f" ({metrics.gpu_source})" if field == "gpu_utilization" and metrics.gpu_source else ""
        lines.append(f"  {field.replace('_', ' ')}: {_told(sample, unit)}{source}")
    return lines


def _revision_of(labels: Mapping[str, str]) -> str:
    """The revision that a series says it is of, by whichever label it does."""
    found = (labels.get(name) for name in ("destination_workload", "slipway_dev_revision", "revision"))
    return next((name for name in found if name), "")


def _names(matched: Counter[str], pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which engine the pods run, and the names of the series that were found for it."""
    engine = next((found for pod in pods if (found := label(pod, ENGINE_LABEL))), Engine.SLIPWAY.value)
    counts = (f"{name or 'without a name'} ({count})" for name, count in sorted(matched.items()))
    lines = [f"  engine {engine}: {', '.join(counts) or 'no series of its names or of the mesh'}"]
    if matched and not any(name.endswith("_bucket") for name in matched):
        lines.append("  no histogram of latencies: checks on latency stay undecided (NoHistogram)")
    return lines


def _told(sample: Sample, unit: str) -> str:
    if sample.ok:
        return f"{sample.value:.4g}{unit}"
    return f"{sample.quality}{f': {sample.reason}' if sample.reason else ''}"


def _warnings(view: MetricsView, pods: Mapping[str, object]) -> list[str]:
    """What a person can do when nothing fits."""
    if view.revisions and not set(view.revisions) & set(pods):
        return ["", "The metrics are of other revisions than the pods: check the label revision."]
    if not view.revisions:
        return [
            "",
            "No series belongs to this object. Scrape its pods (annotations prometheus.io/scrape, port, path), and let",
            "the scrape configuration add the labels namespace and pod.",
        ]
    return []


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
