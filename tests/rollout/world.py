"""A small world for the rollout: pods that start and fail, a router that takes up what is written, a clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.api.judgement import NO_JUDGEMENT, Judgement
from slipway.api.observed import Observed, PodView, ProbeView, RevisionView, TrafficView
from slipway.api.revisions import revision_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import Action, ModelDeploymentStatus, Role, RolloutStatus, Verdict, VersionStatus
from slipway.rollout import Capacity, ExperimentTarget, RolloutDecision, RolloutRequest, Target, advance

SAFE = Judgement(Verdict.SAFE, "EvidenceOfSafety", "safe")
HARMFUL = Judgement(Verdict.HARMFUL, "HarmDetected", "errors: 9 of 20 against 0 of 400", "errors")
UNDECIDED = Judgement(Verdict.UNDECIDED, "CollectingEvidence", "more requests are needed")

VERSIONS = ("v1", "v2", "v3")


def raw_spec(serve: str, experiments: Sequence[dict[str, Any]] = (), **rollout: Any) -> dict[str, Any]:
    steps = [{"weight": 10, "hold": "10s"}, {"weight": 50, "hold": "10s"}]
    return {
        "versions": [{"name": name, "uri": f"file:///models/{name}"} for name in VERSIONS],
        "serve": serve,
        "traffic": {"settle": "2s", "experiments": list(experiments)},
        "rollout": {"steps": steps, "keepPrevious": "30s", "progressDeadline": "2m"} | rollout,
        "autoscaling": {"minReplicas": 1, "maxReplicas": 6},
    }


@dataclass
class Pod:
    created_at: float
    ready_at: float | None = None
    crashes: bool = False


@dataclass
class World:
    """Status and cluster; ``reconcile`` decides once and applies the effects."""

    raw: dict[str, Any]
    now: float = 1_000_000.0
    status: ModelDeploymentStatus = field(default_factory=ModelDeploymentStatus)
    pods: dict[str, list[Pod]] = field(default_factory=dict)
    probes: dict[str, bool] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    subsets: set[str] = field(default_factory=set)
    judgement: Judgement = NO_JUDGEMENT
    breaker: Judgement | None = None
    start_seconds: float = 5.0
    demand: float | None = None
    per_replica: float | None = None
    gpus: dict[str, int] = field(default_factory=dict)
    """GPUs of one pod, by version."""
    leave_seconds: float = 0.0
    """How long a pod that ends still holds its GPUs."""
    leaving: dict[str, list[float]] = field(default_factory=dict)
    """When pods that end are gone, by revision."""
    judged: int = 0
    """Steps back at the time that the judgement was set; it says nothing of evidence after that."""
    mesh_missing: bool = False
    shortage: str = ""
    """The scheduler's words for every pod that is made from now on."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why the API server makes no pods, by revision."""
    log: list[str] = field(default_factory=list)

    @property
    def spec(self) -> ModelDeploymentSpec:
        return ModelDeploymentSpec.from_wire(self.raw)

    @property
    def target(self) -> Target:
        served = self.spec.served
        return Target(served, self.revision(served))

    def revision(self, version: str) -> str:
        return revision_of("m", self.raw, version).name

    def entry(self, version: str) -> VersionStatus:
        entry = self.status.revision(self.revision(version))
        assert entry is not None, f"{version} is not live"
        return entry

    @property
    def rollout(self) -> RolloutStatus:
        assert self.status.rollout is not None
        return self.status.rollout

    def serve(self, version: str) -> None:
        self.raw = self.raw | {"serve": version}

    def act(self, verb: str, action_id: str, by: str = "ada") -> None:
        action = Action(id=action_id, verb=verb, by=by)
        self.status = self.status.model_copy(update={"action": action})

    def observed(self) -> Observed:
        views = {}
        for version in VERSIONS:
            revision = self.revision(version)
            pods = self.pods.get(revision, [])
            ending = [at for at in self.leaving.get(revision, []) if at > self.now]
            views[revision] = RevisionView(
                revision=revision,
                version=version,
                exists=revision in self.pods,
                replicas=len(pods),
                pods=(
                    *(self._pod(revision, index, pod) for index, pod in enumerate(pods)),
                    *(PodView(f"{revision}-old-{at}", at, terminating=True) for at in ending),
                ),
                failure=self.failures.get(revision, ""),
                probe=ProbeView(self.probes.get(revision, True) if self._ready(revision) else None),
            )
        return Observed(
            name="m",
            namespace="n",
            uid="u",
            generation=1,
            revisions=views,
            traffic=TrafficView(bool(self.weights), dict(self.weights), frozenset(self.subsets)),
            mesh_missing=self.mesh_missing,
        )

    def _pod(self, revision: str, index: int, pod: Pod) -> PodView:
        ready = pod.ready_at is not None and pod.ready_at <= self.now and not pod.crashes
        return PodView(
            name=f"{revision}-{index}",
            created_at=pod.created_at,
            ready=ready,
            restarts=3 if pod.crashes else 0,
            waiting_reason="CrashLoopBackOff" if pod.crashes else "",
            unschedulable=pod.ready_at is None,
            message=self.shortage if pod.ready_at is None else "",
        )

    def _ready(self, revision: str) -> int:
        pods = self.pods.get(revision, [])
        return sum(1 for pod in pods if pod.ready_at is not None and pod.ready_at <= self.now and not pod.crashes)

    def decide(self) -> RolloutDecision:
        maximum = self.spec.autoscaling.max_replicas
        reference = self.status.rollout.reference if self.status.rollout else 1
        capacity = {
            entry.revision: Capacity(self.demand, self.per_replica, reference, maximum)
            for entry in self.status.versions
        }
        return advance(
            RolloutRequest(
                spec=self.spec,
                status=self.status,
                observed=self.observed(),
                target=self.target,
                capacity=capacity,
                now=self.now,
                judgement=self.judgement if self.judged == self._step_downs() else UNDECIDED,
                breaker=self.breaker,
                experiments=tuple(
                    ExperimentTarget(item.version, self.revision(item.version), item.weight, bool(item.match))
                    for item in self.spec.traffic.experiments
                ),
                gpus={self.revision(version): count for version, count in self.gpus.items()},
            )
        )

    def judge(self, judgement: Judgement) -> None:
        """Let the evidence that is collected now say something."""
        self.judgement, self.judged = judgement, self._step_downs()

    def _step_downs(self) -> int:
        return self.status.rollout.step_downs if self.status.rollout else 0

    def gpus_in_use(self) -> int:
        """GPUs held by pods, those that end included."""
        used = 0
        for version in VERSIONS:
            revision = self.revision(version)
            ending = sum(1 for at in self.leaving.get(revision, []) if at > self.now)
            used += self.gpus.get(version, 0) * (len(self.pods.get(revision, [])) + ending)
        return used

    def reconcile(self, *, persist: bool = True, apply: bool = True) -> RolloutDecision:
        """One reconcile; without ``persist`` or ``apply`` the operator dies before that effect."""
        decision = self.decide()
        if not persist:
            return decision
        entries = []
        for entry in decision.status.versions:
            replicas = entry.replicas
            if entry.role in (Role.STABLE, Role.CANDIDATE, Role.EXPERIMENT):
                replicas = max(entry.replicas, decision.floors.get(entry.revision, 0), 1)
                replicas = min(replicas, decision.caps.get(entry.revision, replicas))
            entries.append(entry.model_copy(update={"replicas": min(replicas, 6)}))
        self.status = decision.status.model_copy(update={"versions": tuple(entries)})
        self.log.extend(event.reason for event in decision.events)
        if apply:
            self.apply()
        return decision

    def apply(self) -> None:
        """The effects in their order: pods, subsets, weights."""
        for entry in self.status.versions:
            pods = self.pods.setdefault(entry.revision, [])
            while len(pods) < entry.replicas:
                ready_at = None if self.shortage else self.now + self.start_seconds
                pods.append(Pod(self.now, ready_at))
            if self.leave_seconds:
                gone = len(pods) - entry.replicas
                self.leaving.setdefault(entry.revision, []).extend([self.now + self.leave_seconds] * gone)
            del pods[entry.replicas :]
        for revision in tuple(self.pods):
            if self.status.revision(revision) is None:
                del self.pods[revision]
        if self.mesh_missing:
            return
        self.subsets = {entry.revision for entry in self.status.versions if entry.subset}
        routed = {entry.revision: entry.weight.intended for entry in self.status.versions if entry.subset}
        if sum(routed.values()) == 100:
            self.weights = routed

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, reconciling at every step."""
        end = self.now + seconds
        while self.now < end:
            self.reconcile()
            self.now += step
        self.reconcile()

    def weight(self, version: str) -> int:
        entry = self.status.revision(self.revision(version))
        return entry.weight.intended if entry else 0


def serving(version: str = "v1", replicas: int = 1, **rollout: Any) -> World:
    """A world in which a first version already serves, with so many replicas."""
    world = World(raw_spec(version, **rollout))
    world.run(20)
    assert world.entry(version).role is Role.STABLE
    if replicas > 1:
        entries = [entry.model_copy(update={"replicas": replicas}) for entry in world.status.versions]
        world.status = world.status.model_copy(update={"versions": tuple(entries)})
        world.run(10)
    return world
