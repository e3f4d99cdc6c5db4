"""Simulated requests, the counters of the servers that answer them, and a Prometheus that has scraped these."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from slipway.api.samples import CounterSeries, LatencySeries, MetricsView, Quality, RevisionMetrics, Sample
from slipway.kube.kinds import POD

from e2e.faults.api import Api
from e2e.faults.mesh import REVISION, Mesh
from e2e.faults.nodes import is_ready

__all__ = ["Demand", "Scraped"]

SCRAPE = 5.0
KEPT = 24
"""Scrapes, two minutes of them."""
BOUNDS = (0.1, 0.3, 0.5, float("inf"))


@dataclass
class Scraped:
    """What Prometheus knows at one moment."""

    metrics: MetricsView

    @property
    def available(self) -> bool:
        """Whether Prometheus answered."""
        return self.metrics.available

    def view(self, namespace: str, model: str) -> MetricsView:
        """The same for everybody: there is one ModelDeployment."""
        return self.metrics


@dataclass
class Demand:
    """Requests at a constant rate, shared out by the weights of the mesh; also what the operator asks for metrics."""

    api: Api
    mesh: Mesh
    wall: Callable[[], float]
    qps: float = 40.0
    bad: dict[str, float] = field(default_factory=dict)
    """Share of bad answers by version."""
    away: bool = False
    """Whether Prometheus is."""
    served: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Requests answered so far by revision, at each scrape (wall clock)."""
    _counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _good: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    _bad: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    _totals: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    _revisions: dict[str, str] = field(default_factory=dict)
    _ready: dict[str, list[str]] = field(default_factory=dict)

    async def run(self) -> None:
        """Send requests for ever."""
        while True:
            for _ in range(int(SCRAPE)):
                await asyncio.sleep(1.0)
                self._send()
            self._scrape()

    def _send(self) -> None:
        self._ready = defaultdict(list)
        for pod in self.api.objects(POD, self.mesh.namespace):
            if is_ready(pod):
                name, revision = pod["metadata"]["name"], pod["metadata"]["labels"][REVISION]
                self._revisions[name] = revision
                self._ready[revision].append(name)
        for revision, weight in self.mesh.weights.items():
            pods = self._ready[revision]
            for pod_name in pods:
                count = self.qps * weight / 100 / len(pods)
                bad = count * self.bad.get(revision.split("-")[1], 0.0)
                self._totals[pod_name, "200"] += count - bad
                self._totals[pod_name, "500"] += bad
                self._counts[revision] += count

    def _scrape(self) -> None:
        now = self.wall()
        self.served.append((now, dict(self._counts)))
        for pods in self._ready.values():
            for pod in pods:
                self._good[pod] = [*self._good[pod][-KEPT:], (now, round(self._totals[pod, "200"]))]
                self._bad[pod] = [*self._bad[pod][-KEPT:], (now, round(self._totals[pod, "500"]))]

    async def snapshot(self, now: float) -> Scraped:
        """What Prometheus would answer."""
        if self.away:
            return Scraped(MetricsView(at=now, available=False, error="connection refused"))
        by_revision: dict[str, list[str]] = defaultdict(list)
        for pod in self._good:
            by_revision[self._revisions[pod]].append(pod)
        revisions = {revision: self._of(revision, pods) for revision, pods in by_revision.items()}
        return Scraped(MetricsView(at=now, available=True, error="", scrape_interval=SCRAPE, revisions=revisions))

    def want(self, namespace: str, name: str, queries: Sequence[str]) -> None:
        """No expressions of users are known here."""

    def _of(self, revision: str, pods: list[str]) -> RevisionMetrics:
        at = max(self._good[pod][-1][0] for pod in pods)
        rate = Sample(self.qps * self.mesh.weights.get(revision, 0) / 100, at=at, quality=Quality.OK)
        still = Sample(0.0, at=at, quality=Quality.OK)
        alive = self._ready.get(revision, ())
        return RevisionMetrics(
            revision=revision,
            arrivals=rate,
            served=rate,
            error_rate=still,
            in_flight=still,
            queue_time=still,
            queue_depth=still,
            reporting_pods=frozenset(alive),
            scrapes={pod: tuple(at for at, _ in self._good[pod]) for pod in pods},
            requests=tuple(
                CounterSeries(pod, code, tuple(scrapes[pod]))
                for pod in pods
                for code, scrapes in (("200", self._good), ("500", self._bad))
            ),
            latencies=tuple(LatencySeries(pod, bound, tuple(self._good[pod])) for pod in pods for bound in BOUNDS),
        )
