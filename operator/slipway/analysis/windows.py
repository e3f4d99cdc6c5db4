"""Closed windows on a fixed grid, with the exact requests of both versions in each.

An increase belongs to the window in which it was scraped. Pods are scraped at different moments, so the requests of a
window are those of its length, shifted by at most one scrape interval.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from slipway.analysis.evidence import WindowCounts
from slipway.api.counters import covered_from, increases, scrape_times
from slipway.api.samples import MetricsView, RevisionMetrics, ShadowPair, ShadowResult

__all__ = [
    "BOUND_TOLERANCE",
    "Arm",
    "Series",
    "Source",
    "Span",
    "Window",
    "closed_windows",
    "error_series",
    "latency_bound",
    "latency_series",
    "shadow_series",
    "window_length",
]

LONGEST_WINDOW = 120.0
"""Seconds; longer windows are cut into equal parts, since raw scrapes are kept for a few minutes only."""
BOUND_TOLERANCE = 1e-9


@dataclass(slots=True)
class Arm:
    """Requests of one version in one window, by pod."""

    requests: dict[str, float] = field(default_factory=dict)
    bad: dict[str, float] = field(default_factory=dict)

    def add(self, pod: str, requests: float, bad: float) -> None:
        """Count an increase."""
        self.requests[pod] = self.requests.get(pod, 0.0) + requests
        self.bad[pod] = self.bad.get(pod, 0.0) + bad

    def counts(self) -> tuple[int, int]:
        """All requests and the bad ones among them."""
        requests = sum(round(max(count, 0.0)) for count in self.requests.values())
        bad = sum(min(max(round(self.bad[pod]), 0), round(max(self.requests[pod], 0.0))) for pod in self.requests)
        return requests, bad

    def pods(self) -> tuple[str, ...]:
        """Pods that answered requests."""
        return tuple(sorted(pod for pod, count in self.requests.items() if round(count) > 0))

    def bad_pods(self) -> tuple[str, ...]:
        """Pods with bad requests."""
        return tuple(pod for pod in self.pods() if round(self.bad[pod]) > 0)


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window; ``end`` in milliseconds since the epoch."""

    end: int
    candidate: Arm = field(default_factory=Arm)
    stable: Arm = field(default_factory=Arm)

    @property
    def counts(self) -> WindowCounts:
        """The counts of both versions."""
        requests, bad = self.candidate.counts()
        return WindowCounts(requests, bad, *self.stable.counts())


@dataclass(frozen=True, slots=True)
class Series:
    """A counter and what one unit of it adds to all requests and to the bad ones."""

    pod: str
    samples: tuple[tuple[float, float], ...]
    requests: int
    bad: int


def error_series(metrics: RevisionMetrics) -> Iterator[Series]:
    """Request counters by code: 5xx are bad."""
    for series in metrics.requests:
        yield Series(series.pod, series.samples, 1, 1 if series.code.startswith("5") else 0)


def latency_series(metrics: RevisionMetrics, bound: float) -> Iterator[Series]:
    """Histogram buckets: all requests are bad but those within the bound."""
    for series in metrics.latencies:
        if math.isinf(series.bound):
            yield Series(series.pod, series.samples, 1, 1)
        elif abs(series.bound - bound) < BOUND_TOLERANCE:
            yield Series(series.pod, series.samples, 0, -1)


def shadow_series(metrics: RevisionMetrics, candidate: str, pair: ShadowPair) -> Iterator[Series]:
    """Comparisons of one kind made for ``candidate``: differing answers and errors are bad, dropped ones are none."""
    for series in metrics.shadows:
        if series.candidate == candidate and series.pair is pair and series.result is not ShadowResult.DROPPED:
            yield Series(series.pod, series.samples, 1, 0 if series.result is ShadowResult.AGREE else 1)


@dataclass(frozen=True, slots=True)
class Source:
    """Where the requests of an arm are counted."""

    revision: str
    series: Callable[[RevisionMetrics], Iterator[Series]]


def latency_bound(view: MetricsView, revisions: tuple[str, str], threshold: float) -> float | None:
    """The smallest histogram bound (seconds) at or above the threshold that every pod has; None without one."""
    by_pod: dict[tuple[str, str], set[float]] = {}
    for revision in revisions:
        for series in view.of(revision).latencies:
            by_pod.setdefault((revision, series.pod), set()).add(round(series.bound, 9))
    shared = set.intersection(*by_pod.values()) if by_pod else set()
    return min((bound for bound in shared if threshold - BOUND_TOLERANCE <= bound < math.inf), default=None)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the grid; times in milliseconds since the epoch but for ``floor``."""

    length: int
    """Length of a window."""
    first: int
    """Start of the first window."""
    last: int
    """End of the last closed window; not after ``first`` where none is closed."""
    floor: float
    """Seconds since the epoch before which no request counts."""

    @classmethod
    def of(cls, interval: float, view: MetricsView, counting_from: float, counted: float | None, now: float) -> Self:
        """The windows that are closed, old enough and not yet counted.

        A window is judged once it is older than two scrape intervals: one for its last scrape, one for that to arrive.
        """
        length = window_length(interval, view.scrape_interval)
        begin = max(_milliseconds(counting_from), _milliseconds(counted) if counted is not None else 0)
        first = -(-begin // length) * length
        limit = _milliseconds(min(view.at, now) - 2 * view.scrape_interval)
        return cls(length, first, limit // length * length, counting_from)

    @property
    def closed(self) -> int:
        """Number of closed windows."""
        return max(0, (self.last - self.first) // self.length)

    @property
    def end(self) -> float:
        """End of the last closed window in seconds since the epoch."""
        return self.last / 1000

    def window_of(self, at: float) -> int:
        """End of the window that a scrape belongs to; a scrape on the grid belongs to the window that it ends."""
        return -(-_milliseconds(at) // self.length) * self.length


def closed_windows(
    view: MetricsView,
    arms: tuple[Source, Source],
    span: Span,
) -> list[Window]:
    """The windows of a span with requests, oldest first; ``arms`` are the candidate's and stable's."""
    windows: dict[int, Window] = {}
    covered = covered_from(view)
    for place, source in enumerate(arms):
        metrics = view.of(source.revision)
        scrapes: Mapping[str, tuple[float, ...]] = scrape_times(metrics)
        for counter in source.series(metrics):
            for increase in increases(counter.samples, scrapes[counter.pod], covered, view.scrape_interval):
                end = span.window_of(increase.at)
                if increase.amount <= 0 or increase.since < span.floor or not span.first < end <= span.last:
                    continue
                window = windows.setdefault(end, Window(end))
                arm = window.stable if place else window.candidate
                arm.add(counter.pod, counter.requests * increase.amount, counter.bad * increase.amount)
    return [windows[end] for end in sorted(windows)]


def window_length(interval: float, scrape_interval: float) -> int:
    """Milliseconds of a window: the interval, cut where it is long, or lengthened so that each pod is scraped in it."""
    parts = max(1, math.ceil(interval / LONGEST_WINDOW))
    shortest = 1.5 * scrape_interval
    length = interval / parts
    return max(1, _milliseconds(length * max(1, math.ceil(shortest / length))))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
