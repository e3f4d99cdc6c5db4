"""The stabilisation window: replicas are removed only when load has needed fewer for all of it.

Only plans below the present number are remembered, so a steady load leaves nothing in status. A plan at or above it,
unknown demand or a gap in the record starts the window anew, and so does one that a wrong clock wrote into the future;
a restarted operator goes on where the record ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.api.status import PlanSample
from slipway.api.timestamps import format_time, parse_time

__all__ = ["Window"]

GRAINS = 10
"""Remembered plans per window, so that a window costs few writes of status."""
LARGEST_GAP = 120.0
"""Seconds without a plan after which nothing can be said of the time between, unless grains are longer."""


@dataclass(frozen=True, slots=True)
class Window:
    """Plans below the present number of replicas, oldest first."""

    plans: tuple[PlanSample, ...]
    length: float
    """Seconds."""

    @property
    def _grain(self) -> float:
        return self.length / GRAINS

    def with_plan(self, replicas: int, now: float) -> "Window":
        """The window after a plan below the present number.

        A plan within one grain of the last is remembered only if it is higher, which can only keep more replicas.
        """
        plans = self._within(now)
        if plans and now - _at(plans[-1]) < self._grain:
            if replicas <= plans[-1].replicas:
                return Window(tuple(plans), self.length)
            if len(plans) > 1:
                plans = plans[:-1]
        return Window((*plans, PlanSample(at=format_time(now), replicas=replicas)), self.length)

    def covered_at(self) -> float | None:
        """When the record has lasted for the whole window, in seconds since the epoch; ``None`` if it is empty."""
        return _at(self.plans[0]) + self.length if self.plans else None

    def highest(self) -> int:
        """The highest plan remembered."""
        return max((plan.replicas for plan in self.plans), default=0)

    def _within(self, now: float) -> Sequence[PlanSample]:
        """Plans that still count: those of the window, and the last one before it, which shows that it is covered."""
        if self.plans and abs(now - _at(self.plans[-1])) > max(LARGEST_GAP, 3 * self._grain):
            return []
        oldest = now - self.length - self._grain
        before = [plan for plan in self.plans if _at(plan) < oldest]
        inside = [plan for plan in self.plans if _at(plan) >= oldest]
        return [*before[-1:], *inside]


def _at(plan: PlanSample) -> float:
    return parse_time(plan.at) or 0.0
