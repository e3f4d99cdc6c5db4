"""The simulated cluster: pods that take time to start, one first-in-first-out queue of fluid requests before them.

Every ready pod works off ``capacity`` requests per second. A request that waits longer than the objective has missed
it; one that waits longer than the time-out leaves unserved and has missed it too.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Plant", "SimulatedPod", "Totals", "start_times"]


@dataclass(slots=True)
class SimulatedPod:
    """A pod; times in seconds of the simulation."""

    number: int
    created_at: float
    ready_at: float


@dataclass(slots=True)
class Totals:
    """What has happened up to now; all cumulative."""

    arrived: float = 0.0
    served: float = 0.0
    late: float = 0.0
    """Requests that waited longer than the objective, or were given up."""
    waited: float = 0.0
    """Request-seconds of waiting, of requests served."""
    busy: float = 0.0
    """Pod-seconds of work."""
    pod_seconds: float = 0.0
    """Of all pods that exist, starting ones too: what is paid for."""
    short: float = 0.0
    """Request-seconds of backlog."""


def start_times(cold_start: float, seed: int) -> Callable[[], float]:
    """Draws start times around ``cold_start`` (the median) with a tail: the 90th percentile is about 1.3 times it."""
    dice = random.Random(seed)  # noqa: S311  a simulation, to be repeated
    return lambda: cold_start * math.exp(dice.gauss(0.0, 0.2))


@dataclass(slots=True)
class Plant:
    """Pods and queue, one second per step."""

    capacity: float
    """Requests per second of one ready pod."""
    draw_start: Callable[[], float]
    objective: float = 2.0
    """Longest wait in seconds that counts as good."""
    timeout: float = 30.0
    places: int = 1_000_000
    """Pods that the cluster has room for."""
    now: float = 0.0
    pods: list[SimulatedPod] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    wanted: int = 0
    _queue: deque[list[float]] = field(default_factory=deque)
    _made: int = 0

    @classmethod
    def started(
        cls, replicas: int, capacity: float, draw_start: Callable[[], float], *, objective: float, places: int
    ) -> "Plant":
        """A plant with ``replicas`` pods that have been ready for long."""
        plant = cls(capacity, draw_start, objective=objective, places=places, wanted=replicas)
        plant.pods = [SimulatedPod(number, -7200.0, -7200.0 + draw_start()) for number in range(replicas)]
        plant._made = replicas
        return plant

    @property
    def ready(self) -> int:
        """Pods that serve."""
        return sum(1 for pod in self.pods if pod.ready_at <= self.now)

    @property
    def backlog(self) -> float:
        """Requests that wait."""
        return math.fsum(amount for _, amount in self._queue)

    def scale(self, replicas: int) -> None:
        """Have so many pods: new ones begin to start, the youngest and those not ready go first, as ReplicaSets do."""
        self.wanted = replicas
        while len(self.pods) > replicas:
            victim = max(self.pods, key=lambda pod: (pod.ready_at > self.now, pod.ready_at, pod.number))
            self.pods.remove(victim)
        while len(self.pods) < min(replicas, self.places):
            self.pods.append(SimulatedPod(self._made, self.now, self.now + self.draw_start()))
            self._made += 1

    def step(self, rate: float) -> None:
        """One second with ``rate`` requests."""
        totals = self.totals
        totals.arrived += rate
        if rate > 0:
            self._queue.append([self.now, rate])
        budget = room = self.ready * self.capacity
        while self._queue:
            came, amount = self._queue[0]
            wait = self.now - came
            if wait > self.timeout:
                totals.late += amount
                self._queue.popleft()
                continue
            if budget <= 0:
                break
            taken = min(amount, budget)
            budget -= taken
            totals.served += taken
            totals.waited += taken * wait
            if wait > self.objective:
                totals.late += taken
            if taken >= amount:
                self._queue.popleft()
            else:
                self._queue[0][1] -= taken
        totals.busy += (room - budget) / self.capacity
        totals.pod_seconds += len(self.pods)
        totals.short += self.backlog
        self.now += 1.0
