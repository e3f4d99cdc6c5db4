"""Runs one policy over one load and tells how it went."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from slipway.simulation.load import Load
from slipway.simulation.plant import Plant, start_times
from slipway.simulation.scrapes import Fault, Scrapes

__all__ = ["Conditions", "Moment", "Policy", "Result", "matched", "replay"]

REVERSAL = 900.0
"""Seconds within which a change in the other direction counts as a reversal."""
PICTURE_STEP = 15
"""Seconds between two moments kept for the picture."""
COST_TOLERANCE = 0.02
"""Relative difference of pod hours up to which two runs cost the same."""
HALVINGS = 24


class Policy(Protocol):
    """Something that decides replicas."""

    @property
    def name(self) -> str:
        """Shown in tables."""
        ...

    @property
    def period(self) -> float:
        """Seconds between two decisions."""
        ...

    def wanted(self, plant: Plant, scrapes: Scrapes) -> int:
        """Replicas to have now."""
        ...


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is the same for all policies that are compared."""

    capacity: float
    """Requests per second of a ready pod at most."""
    cold_start: float
    """Median start in seconds."""
    replicas: int
    """At the beginning."""
    objective: float = 2.0
    """Longest good wait in seconds."""
    places: int = 1_000_000
    """Pods that the cluster has room for."""
    seed: int = 1
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """The plant at a moment, for the picture."""

    at: float
    rate: float
    wanted: int
    ready: int
    backlog: float


@dataclass(frozen=True, slots=True)
class Result:
    """How a run went."""

    policy: str
    load: str
    requests: float
    missed: float
    """Share of requests that waited longer than the objective or were given up, 0 to 1."""
    pod_hours: float
    """Of all pods that existed; GPU hours at one GPU a pod."""
    scalings: int
    reversals: int
    """Changes of direction within 15 minutes."""
    downs: int
    largest: int
    """Most replicas."""
    course: tuple[Moment, ...]
    target: float | None = None
    """The rival's target where it was matched to a cost."""


def replay(policy: Policy, load: Load, conditions: Conditions) -> Result:
    """Run a policy over a load."""
    plant = Plant.started(
        conditions.replicas,
        conditions.capacity,
        start_times(conditions.cold_start, conditions.seed),
        objective=conditions.objective,
        places=conditions.places,
    )
    scrapes = Scrapes(conditions.faults)
    course: list[Moment] = []
    changes: list[tuple[float, int]] = []
    due = 0.0
    for second, rate in enumerate(load.rates):
        plant.step(rate)
        scrapes.take(plant)
        if plant.now >= due:
            due = plant.now + policy.period
            wanted = policy.wanted(plant, scrapes)
            if wanted != plant.wanted:
                changes.append((plant.now, wanted - plant.wanted))
                plant.scale(wanted)
        if second % PICTURE_STEP == 0:
            course.append(Moment(plant.now, rate, plant.wanted, plant.ready, plant.backlog))
    return _result(policy.name, load, plant, changes, tuple(course))


def _result(
    name: str, load: Load, plant: Plant, changes: Sequence[tuple[float, int]], course: tuple[Moment, ...]
) -> Result:
    reversals = sum(
        1
        for (before, one), (after, other) in itertools.pairwise(changes)
        if (one > 0) != (other > 0) and after - before <= REVERSAL
    )
    return Result(
        policy=name,
        load=load.name,
        requests=plant.totals.arrived,
        missed=(plant.totals.late + plant.backlog) / max(plant.totals.arrived, 1e-9),
        pod_hours=plant.totals.pod_seconds / 3600,
        scalings=len(changes),
        reversals=reversals,
        downs=sum(1 for _, change in changes if change < 0),
        largest=max((moment.wanted for moment in course), default=plant.wanted),
        course=course,
    )


def matched(
    build: Callable[[float], Policy], load: Load, conditions: Conditions, pod_hours: float, *, start: float
) -> Result:
    """The run of a rival whose target is chosen so that it costs ``pod_hours``, within 2 % where that can be had.

    ``start`` is the target to begin with. A higher target is cheaper; where none fits, the nearest cost is given.
    """
    low, high = start / 16, start * 16
    best: Result | None = None
    for _ in range(HALVINGS):
        target = (low * high) ** 0.5
        result = replace(replay(build(target), load, conditions), target=target)
        if best is None or abs(result.pod_hours - pod_hours) < abs(best.pod_hours - pod_hours):
            best = result
        if abs(result.pod_hours - pod_hours) <= COST_TOLERANCE / 4 * pod_hours:
            break
        if result.pod_hours > pod_hours:
            low = target
        else:
            high = target
    assert best is not None
    return best
