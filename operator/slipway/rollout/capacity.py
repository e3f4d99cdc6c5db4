"""How much traffic a number of replicas carries, and how many replicas a weight needs."""

import math
from dataclasses import dataclass

__all__ = ["Capacity"]

HEADROOM = 1.25
"""A replica that is sized for its target still carries this much of it: the target is taken as 80 % of what a replica
can do. It keeps a weight from being taken back because demand rose a little after the replicas were counted."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of one revision in terms of the whole traffic of its ModelDeployment."""

    demand: float | None
    """All arrivals in requests per second; ``None`` while unknown."""
    per_replica: float | None
    """Requests per second that one replica is given; ``None`` while unknown."""
    reference: int
    """Replicas that carry all traffic while demand or capacity is unknown: those of stable when the rollout began."""
    maximum: int
    """Most replicas of one revision; a revision that has them carries whatever it gets."""

    def replicas_for(self, weight: int) -> int:
        """Replicas that ``weight`` per cent of the traffic need, between 1 (0 for no weight) and the maximum."""
        if weight <= 0:
            return 0
        return max(1, min(self.maximum, math.ceil(self._replicas(weight) - 1e-9)))

    def carried(self, ready: int) -> int:
        """The largest weight in per cent that ``ready`` replicas carry."""
        if ready <= 0:
            return 0
        if ready >= self.maximum:
            return 100
        whole = self._replicas(100)
        if whole <= 0:
            return 100
        return math.floor(min(100.0, 100 * HEADROOM * ready / whole + 1e-9))

    def _replicas(self, weight: int) -> float:
        if self.demand is not None and self.per_replica:
            return self.demand * weight / 100 / self.per_replica
        return max(1, self.reference) * weight / 100
