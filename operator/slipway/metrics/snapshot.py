"""One reading of Prometheus for all ModelDeployments."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from slipway.api.samples import MISSING, MetricsView, Quality, RevisionMetrics, Sample
from slipway.metrics.gpu import PodGpu, attribute
from slipway.metrics.mesh import by_mesh, proxies_of, workloads_in
from slipway.metrics.pods import SCRAPED, Pace, PodKey, PodMetrics
from slipway.metrics.presets import translated
from slipway.metrics.revision import revision_metrics
from slipway.metrics.traces import Trace, parse, stitch

__all__ = ["Answers", "Snapshot", "read_answers"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What Prometheus knew at a moment."""

    at: float
    """Seconds since the epoch."""
    available: bool
    error: str = ""
    scrape_interval: float = 15.0
    """Seconds between scrapes that are assumed where none have been seen."""
    views: Mapping[tuple[str, str], MetricsView] = field(default_factory=dict)
    """By namespace and model."""
    gateway: Mapping[tuple[str, str], Sample] = field(default_factory=dict)
    """What the mesh sends to Services, by namespace and name, in requests per second."""
    queries: Mapping[str, Sample] = field(default_factory=dict)
    """Values of the users' own expressions, by their text."""

    def view(self, namespace: str, model: str) -> MetricsView:
        """The metrics of a ModelDeployment; without revisions where Prometheus knows none of its pods."""
        known = self.views.get((namespace, model))
        view = known or MetricsView(self.at, self.available, self.error, self.scrape_interval)
        return replace(view, queries=self.queries, gateway=self.gateway.get((namespace, model), MISSING))


@dataclass(frozen=True, slots=True)
class Answers:
    """The results of the queries, as JSON."""

    servers: tuple[Any, ...]
    gpus: Any
    down: Any
    gateway: Any = ()
    mesh: Any = ()
    """Answers that proxies count by workload."""
    caveat: str = ""
    """Why they may be incomplete, as Prometheus or what stands before it says."""


def read_answers(answers: Answers, now: float, rate_window: float, scrape_interval: float) -> Snapshot:
    """Build the snapshot; times in seconds. Raises :class:`slipway.metrics.traces.AnswerError` for unexpected JSON."""
    traces = [trace for result in answers.servers for trace in parse(result)]
    pods = _pods(translated(traces))
    proxies = proxies_of(parse(answers.mesh), workloads_in(traces)) if answers.mesh else {}
    gpus = attribute(parse(answers.gpus), now)
    down = {(trace.labels.get("namespace", ""), trace.labels.get("pod", "")) for trace in parse(answers.down)}
    models: dict[tuple[str, str], dict[PodKey, PodMetrics]] = {}
    for key, pod in pods.items():
        models.setdefault((key.namespace, key.model), {})[key] = pod
    views = {}
    for namespace, model in {*models, *((workload.namespace, workload.model) for workload in proxies)}:
        members = models.get((namespace, model), {})
        counting = {
            workload.revision: found
            for workload, found in proxies.items()
            if (workload.namespace, workload.model) == (namespace, model) and found
        }
        sources = (*members.values(), *(proxy for found in counting.values() for proxy in found))
        if not sources:
            continue
        pace = Pace(
            now, rate_window, _scrape_interval(sources, scrape_interval), min(source.scrapes[0] for source in sources)
        )
        grouped = _by_revision(members)
        revisions = {revision: _revision(revision, own, gpus, down, pace) for revision, own in sorted(grouped.items())}
        for revision, found in counting.items():
            own = revisions.get(revision) or RevisionMetrics(revision)
            revisions[revision] = by_mesh(own, found, {pod for _, pod in down}, _kept_by(found, pace))
        groups = [*(own.values() for own in grouped.values()), *counting.values()]
        interval = max(_kept_by(group, pace).scrape_interval for group in groups)
        told = {revision: replace(metrics, caveat=answers.caveat) for revision, metrics in revisions.items()}
        views[namespace, model] = MetricsView(now, True, "", interval, told)
    return Snapshot(now, True, "", scrape_interval, views, _gateway(answers.gateway))


def _gateway(answer: Any) -> dict[tuple[str, str], Sample]:
    """Requests per second by namespace and name of the Service; what is no rate is left out."""
    found = {}
    for trace in parse(answer):
        at, rate = trace.newest
        name = trace.labels.get("destination_service_name", "")
        if math.isfinite(rate) and rate >= 0:
            found[trace.labels.get("destination_service_namespace", ""), name] = Sample(rate, Quality.OK, at)
    return found


def _revision(
    revision: str,
    own: Mapping[PodKey, PodMetrics],
    gpus: Mapping[tuple[str, str], PodGpu],
    down: set[tuple[str, str]],
    pace: Pace,
) -> RevisionMetrics:
    pace = _kept_by(own.values(), pace)
    known = {key.pod: gpus[key.namespace, key.pod] for key in own if (key.namespace, key.pod) in gpus}
    silent = frozenset(key.pod for key in own if (key.namespace, key.pod) in down)
    return revision_metrics(revision, tuple(own.values()), known, silent, pace)


def _by_revision(members: Mapping[PodKey, PodMetrics]) -> Mapping[str, dict[PodKey, PodMetrics]]:
    found: dict[str, dict[PodKey, PodMetrics]] = {}
    for key, pod in members.items():
        found.setdefault(key.revision, {})[key] = pod
    return found


def _kept_by(sources: Iterable[PodMetrics], pace: Pace) -> Pace:
    """The pace of these alone: proxies and servers, or two versions, may be scraped at different intervals."""
    return replace(pace, scrape_interval=_scrape_interval(sources, pace.scrape_interval))


def _pods(traces: Iterable[Trace]) -> dict[PodKey, PodMetrics]:
    by_pod: dict[PodKey, list[Trace]] = {}
    for trace in traces:
        key = PodKey.of(trace)
        if key is not None:
            by_pod.setdefault(key, []).append(trace)
    return {
        key: PodMetrics.of(key.pod, stitch(_of_server(known))) for key, known in sorted(by_pod.items(), key=_by_name)
    }


def _of_server(traces: list[Trace]) -> list[Trace]:
    """Without the targets that have nothing of a server: a sidecar's port is scraped beside it, under the same pod."""
    servers = {trace.target for trace in traces if trace.name != SCRAPED}
    return [trace for trace in traces if trace.target in servers] if servers else traces


def _by_name(entry: tuple[PodKey, list[Trace]]) -> tuple[str, str]:
    return entry[0].namespace, entry[0].pod


def _scrape_interval(pods: Iterable[PodMetrics], configured: float) -> float:
    """The usual distance of scrapes in seconds, rounded so that jitter does not move it."""
    distances = [later - earlier for pod in pods for earlier, later in zip(pod.scrapes, pod.scrapes[1:], strict=False)]
    if not distances:
        return configured
    usual = median(distances)
    return float(round(usual)) if usual >= 1 else max(round(usual, 1), 0.1)
