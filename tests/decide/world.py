"""A small world for whole decisions: a user's object, pods, a router, and metrics that may stop or lie."""

import random
from dataclasses import dataclass, field
from typing import Any

from slipway.api.observed import Definition, Observed, PodView, ProbeView, RevisionView, TrafficView
from slipway.api.revisions import revision_of
from slipway.api.samples import CounterSeries, LatencySeries, MetricsView, Quality, RevisionMetrics, Sample
from slipway.api.status import Action, ModelDeploymentStatus, VersionStatus
from slipway.engine.decide import Decision, Options, decide

SCRAPE = 5.0
KEEP_SECONDS = 120.0
BOUNDS = (0.1, 0.3, 0.5, float("inf"))


def model_deployment(serve: str = "v1", **spec: Any) -> dict[str, Any]:
    """A small ModelDeployment with three versions."""
    rollout = {
        "steps": [{"weight": 10, "hold": "10s"}, {"weight": 50, "hold": "10s"}],
        "keepPrevious": "30s",
        "progressDeadline": "2m",
        "analysis": {
            "interval": "10s",
            "checks": [{"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.02"}],
        },
    }
    return {
        "metadata": {"name": "m", "namespace": "n", "uid": "u", "generation": 1},
        "spec": {
            "versions": [{"name": name, "uri": f"file:///models/{name}"} for name in ("v1", "v2", "v3")],
            "serve": serve,
            "traffic": {"settle": "2s"},
            "rollout": rollout,
            "autoscaling": {"minReplicas": 1, "maxReplicas": 6, "qps": {"target": 20}},
        }
        | spec,
    }


@dataclass
class Counters:
    """What one pod's server counts."""

    good: float = 0.0
    bad: float = 0.0
    good_scrapes: list[tuple[float, float]] = field(default_factory=list)
    bad_scrapes: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Pod:
    name: str
    created_at: float
    ready_at: float
    crashes: bool = False
    counters: Counters = field(default_factory=Counters)


@dataclass
class World:
    """Status, cluster and metrics; ``tick`` lets time pass and reconciles once."""

    raw: dict[str, Any] = field(default_factory=model_deployment)
    now: float = 1_000_000.0
    qps: float = 30.0
    error_rates: dict[str, float] = field(default_factory=dict)
    gpus: int = 0
    """GPUs of each pod; their hours are written every few minutes, so a world without any is a still one."""
    metrics_fault: str = ""
    """'' none, 'down' Prometheus away, 'silent' no series, 'nan' invalid values."""
    shown: dict[str, int] = field(default_factory=dict)
    """Shares in per cent that metrics show, by revision, whatever the router does."""
    frozen: bool = False
    """Whether the router keeps the weights it has."""
    status: ModelDeploymentStatus = field(default_factory=ModelDeploymentStatus)
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    subsets: set[str] = field(default_factory=set)
    dice: random.Random = field(default_factory=lambda: random.Random(5))
    last: Decision | None = None
    pod_count: int = 0
    scraped_at: float = 0.0
    events: list[str] = field(default_factory=list)
    actions: int = 0

    def revision(self, version: str) -> str:
        return revision_of("m", self.raw["spec"], version).name

    def entry(self, version: str) -> VersionStatus | None:
        return self.status.revision(self.revision(version))

    def weight(self, version: str) -> int:
        entry = self.entry(version)
        return entry.weight.intended if entry else 0

    def replicas(self, version: str) -> int:
        entry = self.entry(version)
        return entry.replicas if entry else 0

    def serve(self, version: str) -> None:
        self.raw["spec"] = self.raw["spec"] | {"serve": version}
        self.raw["metadata"] = self.raw["metadata"] | {"generation": self.raw["metadata"]["generation"] + 1}

    def act(self, verb: str) -> None:
        """Write a request into the status, as people and pipelines do."""
        self.actions += 1
        action = Action(id=f"t{self.actions}", verb=verb, by="ada")
        self.status = self.status.model_copy(update={"action": action})

    def pass_time(self, seconds: float) -> None:
        """Requests arrive and are counted; scrapes happen on their grid."""
        end = self.now + seconds
        while self.now < end:
            step = min(1.0, end - self.now)
            self._serve_requests(step)
            self.now += step
            if self.now - self.scraped_at >= SCRAPE:
                self._scrape()

    def _serve_requests(self, seconds: float) -> None:
        for revision, weight in self.weights.items():
            ready = [pod for pod in self.pods.get(revision, []) if self._ready(pod)]
            for pod in ready:
                count = self.qps * seconds * weight / 100 / len(ready)
                version = revision.split("-")[1]
                whole = int(count) + (self.dice.random() < count % 1)
                rate = self.error_rates.get(version, 0.0)
                bad = sum(self.dice.random() < rate for _ in range(whole))
                pod.counters.bad += bad
                pod.counters.good += whole - bad

    def _scrape(self) -> None:
        self.scraped_at = self.now
        for pods in self.pods.values():
            for pod in pods:
                if not self._ready(pod):
                    continue
                counters = pod.counters
                counters.good_scrapes.append((self.now, counters.good))
                counters.bad_scrapes.append((self.now, counters.bad))
                for scrapes in (counters.good_scrapes, counters.bad_scrapes):
                    while scrapes and scrapes[0][0] < self.now - KEEP_SECONDS:
                        scrapes.pop(0)

    def _ready(self, pod: Pod) -> bool:
        return pod.ready_at <= self.now and not pod.crashes

    def metrics(self) -> MetricsView:
        if self.metrics_fault == "down":
            return MetricsView(at=self.now, available=False, error="connection refused")
        revisions = {}
        for revision, pods in self.pods.items():
            if self.metrics_fault != "silent":
                revisions[revision] = self._revision_metrics(revision, pods)
        return MetricsView(at=self.now, available=True, error="", scrape_interval=SCRAPE, revisions=revisions)

    def _revision_metrics(self, revision: str, pods: list[Pod]) -> RevisionMetrics:
        weight = self.shown.get(revision, self.weights.get(revision, 0))
        quality = Quality.INVALID if self.metrics_fault == "nan" else Quality.OK
        rate = Sample(self.qps * weight / 100, quality, self.scraped_at)
        alive = [pod for pod in pods if pod.counters.good_scrapes]
        if not alive:
            return RevisionMetrics(revision)
        busy = Sample(min(100.0, 3 * rate.value / max(1, len(alive))), quality, self.scraped_at)
        return RevisionMetrics(
            revision=revision,
            arrivals=rate,
            error_rate=Sample(0.0, quality, self.scraped_at),
            in_flight=Sample(0.0, quality, self.scraped_at),
            queue_time=Sample(0.0, quality, self.scraped_at),
            queue_depth=Sample(0.0, quality, self.scraped_at),
            gpu_utilization=busy,
            gpu_source="dcgm",
            reporting_pods=frozenset(pod.name for pod in alive),
            requests=tuple(
                CounterSeries(pod.name, code, tuple(scrapes))
                for pod in alive
                for code, scrapes in (("200", pod.counters.good_scrapes), ("500", pod.counters.bad_scrapes))
            ),
            latencies=tuple(
                LatencySeries(pod.name, bound, tuple(pod.counters.good_scrapes)) for pod in alive for bound in BOUNDS
            ),
        )

    def observed(self) -> Observed:
        versions = {entry.revision: entry.name for entry in self.status.versions}
        versions |= {self.revision(entry["name"]): entry["name"] for entry in self.raw["spec"]["versions"]}
        views = {}
        for revision, version in versions.items():
            pods = self.pods.get(revision, [])
            ready = any(self._ready(pod) for pod in pods)
            views[revision] = RevisionView(
                revision=revision,
                version=version,
                exists=revision in self.pods,
                replicas=len(pods),
                pods=tuple(self._pod(pod) for pod in pods),
                probe=ProbeView(True if ready else None),
            )
        return Observed(
            name="m",
            namespace="n",
            uid="u",
            generation=self.raw["metadata"]["generation"],
            revisions=views,
            definitions=dict(self.definitions),
            traffic=TrafficView(bool(self.weights), dict(self.weights), frozenset(self.subsets)),
        )

    def _pod(self, pod: Pod) -> PodView:
        ready = self._ready(pod)
        return PodView(
            name=pod.name,
            created_at=pod.created_at,
            ready=ready,
            ready_at=pod.ready_at if ready else None,
            restarts=5 if pod.crashes else 0,
            waiting_reason="CrashLoopBackOff" if pod.crashes else "",
            gpus=self.gpus,
        )

    def decide(self) -> Decision:
        raw = self.raw | {"status": self.status.to_wire()}
        return decide(raw, self.observed(), self.metrics(), Options(), self.now)

    def reconcile(self, *, persist: bool = True, apply: bool = True) -> Decision:
        decision = self.decide()
        self.last = decision
        if persist:
            self.status = decision.status
            self.events.extend(event.reason for event in decision.events)
            if apply and decision.apply:
                self._apply(decision)
        return decision

    def _apply(self, decision: Decision) -> None:
        numbers = {name: number for number, name in enumerate(decision.revisions, start=1)}
        self.definitions = {
            name: Definition(revision.version.name, name, numbers[name], revision.data)
            for name, revision in decision.revisions.items()
        }
        for entry in self.status.versions:
            pods = self.pods.setdefault(entry.revision, [])
            while len(pods) < entry.replicas:
                self.pod_count += 1
                pods.append(Pod(f"{entry.revision}-{self.pod_count}", self.now, self.now + 6))
            del pods[entry.replicas :]
        for revision in tuple(self.pods):
            if self.status.revision(revision) is None:
                del self.pods[revision]
        self.subsets = {entry.revision for entry in self.status.versions if entry.subset}
        routed = {entry.revision: entry.weight.intended for entry in self.status.versions if entry.subset}
        if sum(routed.values()) == 100 and not self.frozen:
            self.weights = routed

    def tick(self, seconds: float = 1.0) -> Decision:
        self.pass_time(seconds)
        return self.reconcile()

    def run(self, seconds: float, step: float = 1.0) -> None:
        self.reconcile()
        for _ in range(round(seconds / step)):
            self.tick(step)

    def condition(self, kind: str) -> tuple[str, str]:
        found = next(item for item in self.status.conditions if item.type.value == kind)
        return found.status, found.reason


def serving(**spec: Any) -> World:
    """A world in which v1 serves under load and has been scaled for it."""
    world = World(model_deployment(**spec))
    world.run(60)
    assert world.weight("v1") == 100
    return world
