"""A ModelDeployment in a cluster that consists of memory: pods become ready when the test says so."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slipway.api.events import EventRecord
from slipway.api.observed import ProbeView
from slipway.api.samples import MetricsView
from slipway.engine.decide import Options, decide
from slipway.engine.goldens_reader import GoldensReader
from slipway.engine.observe import Observer, Remarks
from slipway.engine.reconcile import Outcome, Reconciler
from slipway.engine.resync import Resync
from slipway.engine.telemetry import Telemetry
from slipway.kube.apply import Applier
from slipway.kube.cache import Cache
from slipway.kube.client import Client, RetryPolicy
from slipway.kube.metadata import Key
from slipway.resources import RenderOptions

from tests.kube.memory_api import Died, MemoryApi

KEY = Key("nlp", "sentiment")
HEAD = {"apiVersion": "slipway.dev/v1alpha1", "kind": "ModelDeployment"}


def versions(*names: str, **more: Any) -> dict[str, Any]:
    return {"versions": [{"name": name, "uri": f"file:///models/{name}"} for name in names], **more}


class AllPass:
    """A prober that finds every server in order, or has found out nothing yet."""

    passed: bool | None = True

    def view(self, revision: Any, pods: Any, goldens: Any, model_name: str, *, key: Any = None) -> ProbeView:
        return ProbeView(passed=self.passed)

    async def close(self) -> None:
        pass


@dataclass
class World:
    """The API server with its objects, and one operator process after another."""

    api: MemoryApi = field(default_factory=MemoryApi)
    now: float = 1_767_225_600.0
    decide: Any = None
    events: list[EventRecord] = field(default_factory=list)
    options: Options = field(default_factory=Options)
    metrics: Callable[[], MetricsView] | None = None
    """What Prometheus says; without it there is none."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a new process: everything that was only in memory is gone."""
        self.telemetry = Telemetry()
        self.cache = Cache()
        self.client = Client(self.api, retry=RetryPolicy(attempts=1))
        applier, remarks = Applier(self.client, self.cache), Remarks()
        self.wanted: dict[tuple[str, str], tuple[str, ...]] = {}
        self.prober = AllPass()
        goldens = GoldensReader(self.client, lambda: self.now)
        self.resync = Resync(
            self.client, self.cache, self.telemetry, clock=lambda: self.now, on_changed=lambda key: None
        )
        self.reconciler = Reconciler(
            client=self.client,
            cache=self.cache,
            observer=Observer(self.cache, applier, remarks, goldens, prober=self.prober),
            applier=applier,
            remarks=remarks,
            decide=self.decide or (lambda raw, seen, metrics, now: decide(raw, seen, metrics, self.options, now)),
            metrics=lambda namespace, name: self.measured(),
            want=lambda namespace, name, queries: self.wanted.update({(namespace, name): tuple(queries)}),
            render=RenderOptions(runtime_image="slipway-runtime:0.1.0"),
            recorder=self,
            telemetry=self.telemetry,
            wall=lambda: self.now,
            clock=lambda: self.now,
            listed_at=lambda: self.resync.models_listed_at,
        )

    def measured(self) -> MetricsView:
        return self.metrics() if self.metrics else MetricsView(at=self.now, error="no Prometheus here")

    def record(self, involved: Any, record: EventRecord) -> None:
        self.events.append(record)

    def declare(self, spec: dict[str, Any]) -> None:
        stored = self.api.find("modeldeployments", *KEY)
        kept = {"status": stored["status"]} if stored and "status" in stored else {}
        self.api.put({**HEAD, "metadata": {"namespace": KEY.namespace, "name": KEY.name}, "spec": spec, **kept})

    @property
    def status(self) -> dict[str, Any]:
        return self.api.get("modeldeployments", *KEY).get("status") or {}

    def pods_follow(self) -> None:
        """Give every Deployment its pods, all of them ready."""
        for (plural, namespace, name), deployment in list(self.api.objects.items()):
            if plural != "deployments":
                continue
            labels = deployment["metadata"]["labels"]
            for number in range(16):
                pod = f"{name}-{number}"
                if number < deployment["spec"]["replicas"]:
                    self.api.put(_pod(namespace, pod, labels))
                elif self.api.find("pods", namespace, pod):
                    self.api.drop("pods", namespace, pod)
        for plural, namespace, name in list(self.api.objects):
            if plural == "pods" and not self.api.find("deployments", namespace, name.rpartition("-")[0]):
                self.api.drop(plural, namespace, name)

    async def reconcile(self) -> Outcome:
        """Relist, as watches would have told by now, and reconcile once."""
        await self.resync.once()
        return await self.reconciler.reconcile(KEY)

    async def settle(self, rounds: int = 80, step: float = 6.0) -> None:
        """Let time pass until nothing is written any more."""
        quiet = 0
        for _ in range(rounds):
            before = self.api.writes
            await self.reconcile()
            self.pods_follow()
            self.now += step
            quiet = quiet + 1 if self.api.writes == before else 0
            if quiet == 5:
                return
        raise AssertionError(f"never at rest: {self.status.get('rollout')}")

    async def die_and_restart(self, after: int) -> bool:
        """Run until the process is killed before its next write but ``after``; False when it never comes that far."""
        self.api.die_after = self.api.writes + after
        try:
            await self.settle()
        except Died:
            return True
        finally:
            self.api.die_after = None
            self.start()
        return False


def _pod(namespace: str, name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": dict(labels)},
        "spec": {"nodeName": "n", "containers": [{"name": "server"}]},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}],
        },
    }
