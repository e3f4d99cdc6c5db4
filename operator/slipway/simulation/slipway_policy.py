"""The production decision in the simulation: the operator's own request building and ``slipway.scaling.decide``."""

from dataclasses import dataclass, field

from slipway.api.observed import Observed, PodView, RevisionView
from slipway.api.samples import MetricsView, Quality, RevisionMetrics, Sample
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, ScalingDecision, VersionStatus, VersionWeight
from slipway.engine.sizing import scale
from slipway.simulation.plant import Plant, SimulatedPod
from slipway.simulation.scrapes import FaultKind, Scrapes

__all__ = ["SlipwayPolicy"]

EPOCH = 1_700_000_000.0
"""Second 0 of a simulation, in seconds since the epoch."""
RATE_WINDOW = 60.0
"""Seconds that rates are measured over, the operator's default."""
REVISION = "simulated-v1-00000000"


@dataclass(slots=True)
class SlipwayPolicy:
    """Decides every 15 s, as the operator does for an object at rest."""

    spec: ModelDeploymentSpec
    name: str = "slipway"
    period: float = 15.0
    epoch: float = EPOCH
    decisions: list[ScalingDecision] = field(default_factory=list)
    _status: ModelDeploymentStatus | None = None

    def wanted(self, plant: Plant, scrapes: Scrapes) -> int:
        """Replicas to have now."""
        now = self.epoch + plant.now
        status = self._status or _status(plant.wanted)
        observed = _observed(plant, self.epoch)
        sizing = scale(self.spec, status, observed, _metrics(plant, scrapes, self.epoch), floors={}, caps={}, now=now)
        known = len(status.scaling)
        fresh = sizing.status.scaling[known:] if known < len(sizing.status.scaling) else sizing.status.scaling[-1:]
        if sizing.status.scaling != status.scaling:
            self.decisions.extend(fresh)
        self._status = sizing.status
        return sizing.status.versions[0].replicas

    @property
    def status(self) -> ModelDeploymentStatus | None:
        """The status as the operator would have written it; None before the first decision."""
        return self._status

    @status.setter
    def status(self, value: ModelDeploymentStatus | None) -> None:
        """Go on from a status, as a restarted operator does."""
        self._status = value


def _status(replicas: int) -> ModelDeploymentStatus:
    weight = VersionWeight(intended=100, applied=100)
    entry = VersionStatus(name="v1", revision=REVISION, role=Role.STABLE, replicas=replicas, weight=weight)
    return ModelDeploymentStatus(versions=(entry,), stable="v1")


def _observed(plant: Plant, epoch: float) -> Observed:
    pods = tuple(_pod(pod, plant, epoch) for pod in plant.pods)
    missing = plant.wanted - len(plant.pods)
    stuck = tuple(
        PodView(f"{REVISION}-none-{number}", epoch + plant.now - 600, unschedulable=True, gpus=1)
        for number in range(missing)
    )
    view = RevisionView(REVISION, "v1", exists=True, replicas=plant.wanted, pods=(*pods, *stuck))
    return Observed(name="simulated", namespace="default", uid="", generation=1, revisions={REVISION: view})


def _pod(pod: SimulatedPod, plant: Plant, epoch: float) -> PodView:
    ready = pod.ready_at <= plant.now
    return PodView(
        name=f"{REVISION}-sim-{pod.number}",
        created_at=epoch + pod.created_at,
        ready=ready,
        ready_at=epoch + pod.ready_at if ready else None,
        gpus=1,
    )


def _metrics(plant: Plant, scrapes: Scrapes, epoch: float) -> MetricsView:
    now = epoch + plant.now
    fault = scrapes.fault(plant.now)
    if fault is FaultKind.DOWN:
        return MetricsView(now, False, "Prometheus does not answer (simulated)")
    span = scrapes.span(plant.now, RATE_WINDOW)
    if fault is FaultKind.EMPTY or span is None or plant.ready == 0:
        return MetricsView(now, True, "")
    first, last = span
    seconds = last.at - first.at
    quality = {
        FaultKind.NAN: Quality.INVALID,
        FaultKind.STALE: Quality.STALE,
        FaultKind.HALF: Quality.PARTIAL,
    }.get(fault or FaultKind.DOWN, Quality.OK)
    seen = 0.5 if fault is FaultKind.HALF else 1.0

    def sample(value: float, share: float = 1.0) -> Sample:
        trusted = quality in (Quality.OK, Quality.PARTIAL)
        return Sample(share * value if trusted else 0.0, quality, epoch + last.at, fault or "")

    served = last.served - first.served
    busy = 100 * (last.busy - first.busy) / max(last.pod_seconds_ready - first.pod_seconds_ready, 1e-9)
    arrivals = (last.arrived - first.arrived) / seconds
    metrics = RevisionMetrics(
        REVISION,
        arrivals=sample(arrivals, seen),
        served=sample(served / seconds, seen),
        in_flight=sample(last.backlog + served / seconds / plant.capacity, seen),
        queue_time=sample((last.waited - first.waited) / served if served > 0 else 0.0),
        queue_depth=sample(last.backlog, seen),
        gpu_utilization=Sample(reason="exporter gone") if fault is FaultKind.GPU else sample(min(busy, 100.0)),
        gpu_source="dcgm",
        gpu_exported=fault is not FaultKind.GPU,
    )
    return MetricsView(now, True, "", revisions={REVISION: metrics})
