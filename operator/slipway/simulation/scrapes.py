"""What a scaler can know of the plant: scrapes every few seconds, and faults that hide or spoil them."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from slipway.api.errors import SlipwayError
from slipway.api.scalars import Duration
from slipway.simulation.plant import Plant

__all__ = ["Fault", "FaultKind", "Reading", "Scrapes", "parse_faults", "seconds_of"]

SCRAPE_INTERVAL = 15
"""Seconds."""


class FaultKind(StrEnum):
    """What can be wrong with metrics."""

    DOWN = "down"
    """Prometheus does not answer."""
    EMPTY = "empty"
    """It answers, and knows no series."""
    NAN = "nan"
    """Values are no numbers."""
    STALE = "stale"
    """The newest scrape stays what it was."""
    HALF = "half"
    """Half of the pods report nothing."""
    GPU = "gpu"
    """The GPU exporter is gone."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and when; seconds of the simulation."""

    kind: FaultKind
    begin: float
    end: float


def seconds_of(text: str, flag: str) -> float:
    """A duration such as ``90s`` or ``1h30m`` in seconds; raises SlipwayError that names the flag."""
    if not re.fullmatch(Duration.pattern, text):
        raise SlipwayError(f"{flag}: {text!r} is no duration such as 90s or 1h30m")
    return Duration(text).seconds


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Read ``down@10m+5m,half@1h+10m``; raises SlipwayError for anything else."""
    faults = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        kind, _, when = part.partition("@")
        begin, _, length = when.partition("+")
        try:
            start = seconds_of(begin, "--faults")
            faults.append(Fault(FaultKind(kind), start, start + seconds_of(length, "--faults")))
        except (ValueError, SlipwayError) as error:
            known = ", ".join(FaultKind)
            raise SlipwayError(
                f"--faults: {part!r} is not KIND@START+LENGTH such as down@10m+5m; kinds: {known}"
            ) from error
    return tuple(faults)


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals at a scrape."""

    at: float
    arrived: float
    served: float
    waited: float
    busy: float
    pod_seconds_ready: float
    backlog: float


@dataclass(slots=True)
class Scrapes:
    """The readings so far, ascending; one per second, of which a Prometheus sees every fifteenth."""

    faults: Sequence[Fault] = ()
    _all: list[Reading] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)
    _ready_seconds: float = 0.0

    def take(self, plant: Plant) -> None:
        """Note the plant's totals after a step."""
        totals = plant.totals
        self._ready_seconds += plant.ready
        self._times.append(plant.now)
        self._all.append(
            Reading(
                plant.now, totals.arrived, totals.served, totals.waited, totals.busy, self._ready_seconds, plant.backlog
            )
        )

    def fault(self, now: float) -> FaultKind | None:
        """The fault at a moment."""
        return next((fault.kind for fault in self.faults if fault.begin <= now < fault.end), None)

    def span(self, now: float, window: float, interval: int = SCRAPE_INTERVAL) -> tuple[Reading, Reading] | None:
        """The scrapes between which a rate over ``window`` seconds is taken; None before there are two.

        ``interval`` 1 is an observer that reads the pods themselves, once a second.
        """
        newest = int(now) // interval * interval
        oldest = int(now - window) // interval * interval
        last = self._at(newest)
        first = self._at(oldest)
        if first is None and self._all:
            first = self._all[0]
        if last is None or first is None or last.at <= first.at:
            return None
        return first, last

    def _at(self, when: float) -> Reading | None:
        index = bisect_right(self._times, when) - 1
        return self._all[index] if index >= 0 else None
