"""Faithful models of the autoscalers that people use today, by their documented algorithms.

HPA: https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ (algorithm details, behaviour, defaults:
sync 15 s, tolerance 0.1, up 100 % or 4 pods per 15 s, down 100 % per 15 s after a stabilisation window of 300 s).
KEDA: https://keda.sh/docs/scalers/prometheus/ and the scaling concept: between 1 and N it is an HPA on an external
AverageValue metric; by default (ignoreNullValues) an empty or non-numeric answer counts as 0.
KPA: knative/serving docs (autoscaling concepts) and autoscaler.go: every 2 s, stable window 60 s, panic window 6 s at
a threshold of 2, rates limited to 1000 up and 2 down, target 70 % unless given; no data, no decision.
"""

import math
from collections import deque
from dataclasses import dataclass, field

from slipway.simulation.plant import Plant
from slipway.simulation.scrapes import FaultKind, Reading, Scrapes

__all__ = ["HpaPolicy", "KedaPolicy", "KpaPolicy"]

SILENT = (FaultKind.DOWN, FaultKind.EMPTY, FaultKind.NAN)


@dataclass(slots=True)
class HpaPolicy:
    """autoscaling/v2 on total requests per second, external metric, AverageValue ``target``."""

    target: float
    minimum: int
    maximum: int
    name: str = "hpa"
    period: float = 15.0
    window: float = 60.0
    """Seconds of the adapter's ``rate()``."""
    stabilization: float = 300.0
    tolerance: float = 0.1
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _last: float | None = None

    def wanted(self, plant: Plant, scrapes: Scrapes) -> int:
        """One sync."""
        rate = self._rate(plant, scrapes)
        if rate is None:
            return plant.wanted
        current = plant.wanted
        ratio = rate / (self.target * max(current, 1))
        proposal = current if abs(1 - ratio) <= self.tolerance else math.ceil(rate / self.target - 1e-9)
        stabilized = self._stabilized(plant.now, current, proposal)
        if stabilized > current:
            stabilized = min(stabilized, max(2 * current, current + 4))
        return min(max(stabilized, self.minimum), self.maximum)

    def _rate(self, plant: Plant, scrapes: Scrapes) -> float | None:
        fault = scrapes.fault(plant.now)
        if fault in SILENT:
            return None
        if fault is FaultKind.STALE:
            return self._last
        span = scrapes.span(plant.now, self.window)
        if span is None:
            return None
        first, last = span
        seen = 0.5 if fault is FaultKind.HALF else 1.0
        self._last = seen * (last.arrived - first.arrived) / (last.at - first.at)
        return self._last

    def _stabilized(self, now: float, current: int, proposal: int) -> int:
        """Down only to the highest recommendation of the window; up at once."""
        while self._recommended and self._recommended[0][0] <= now - self.stabilization:
            self._recommended.popleft()
        highest = max((replicas for _, replicas in self._recommended), default=proposal)
        self._recommended.append((now, proposal))
        if proposal >= current:
            return proposal
        # A controller that has just started seeds the window with the present count.
        return min(current, max(proposal, highest)) if now >= self.stabilization else current


@dataclass(slots=True)
class KedaPolicy(HpaPolicy):
    """A ScaledObject with a Prometheus trigger over two minutes, as in KEDA's own examples."""

    name: str = "keda"
    window: float = 120.0

    def _rate(self, plant: Plant, scrapes: Scrapes) -> float | None:
        fault = scrapes.fault(plant.now)
        if fault in (FaultKind.EMPTY, FaultKind.NAN):
            return 0.0
        return HpaPolicy._rate(self, plant, scrapes)


@dataclass(slots=True)
class KpaPolicy:
    """Knative's autoscaler on requests per second; ``target`` is what a pod is given after the 70 %."""

    target: float
    minimum: int
    maximum: int
    name: str = "kpa"
    period: float = 2.0
    _panic_until: float = -math.inf
    _panic_peak: int = 0

    def wanted(self, plant: Plant, scrapes: Scrapes) -> int:
        """One tick."""
        if scrapes.fault(plant.now) in (*SILENT, FaultKind.STALE):
            return plant.wanted
        stable, panic = scrapes.span(plant.now, 60.0, 1), scrapes.span(plant.now, 6.0, 1)
        if stable is None or panic is None:
            return plant.wanted
        ready = max(plant.ready, 1)
        want_stable = self._pods(stable, ready)
        want_panic = self._pods(panic, ready)
        over = self._pods(panic, ready, clamp=False) / ready >= 2.0
        if over:
            if plant.now > self._panic_until:
                self._panic_peak = 0
            self._panic_until = plant.now + 60.0
        if plant.now <= self._panic_until:
            self._panic_peak = max(self._panic_peak, want_panic, ready)
            wanted = self._panic_peak
        else:
            wanted = want_stable
        return min(max(wanted, self.minimum), self.maximum)

    def _pods(self, span: tuple[Reading, Reading], ready: int, *, clamp: bool = True) -> int:
        first, last = span
        rate = (last.arrived - first.arrived) / (last.at - first.at)
        pods = math.ceil(rate / self.target - 1e-9)
        if not clamp:
            return pods
        return min(max(pods, math.floor(ready / 2.0)), math.ceil(1000.0 * ready))
