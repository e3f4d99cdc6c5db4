"""Exact increases of cumulative counters from raw scrapes, with restarts of the counting process accounted for.

Unlike PromQL's ``rate`` and ``increase`` nothing is extrapolated: an increase is a number of requests that did happen
between two scrapes, and each is counted once wherever the scrapes are cut into windows.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from slipway.api.samples import MetricsView, RevisionMetrics

__all__ = ["Increase", "covered_from", "increases", "scrape_times"]


@dataclass(frozen=True, slots=True)
class Increase:
    """A counter grew by ``amount`` between two scrapes, both in seconds since the epoch."""

    since: float
    at: float
    amount: float


def increases(
    samples: Sequence[tuple[float, float]], scrapes: Sequence[float], covered: float, scrape_interval: float
) -> tuple[Increase, ...]:
    """What a counter gained at each scrape.

    ``scrapes`` are the times at which its pod was scraped at all. A scrape without the counter proves that it was 0
    then: a counter of a status code appears with its first request. A pod that was not there before starts at 0 as
    well, provided that scrapes of the same kind reach back (``covered``, in seconds since the epoch) at least two
    scrape intervals before it; otherwise its first sample is a baseline. A smaller value, or scrapes without the
    counter in between, mean that the process has been restarted: it counts from 0 again.
    """
    found: list[Increase] = []
    previous: tuple[float, float] | None = None
    for at, value in samples:
        before = bisect_left(scrapes, at)
        last_scrape = scrapes[before - 1] if before else None
        if previous is None:
            if last_scrape is not None:
                found.append(Increase(last_scrape, at, value))
            elif covered <= at - 2 * scrape_interval:
                found.append(Increase(at - scrape_interval, at, value))
        elif last_scrape is not None and last_scrape > previous[0]:
            found.append(Increase(last_scrape, at, value))
        else:
            found.append(Increase(previous[0], at, value - previous[1] if value >= previous[1] else value))
        previous = (at, value)
    return tuple(found)


def scrape_times(metrics: RevisionMetrics) -> dict[str, tuple[float, ...]]:
    """When each pod of a revision was scraped, ascending: as recorded, or else as its counters show."""
    times: dict[str, set[float]] = {}
    for pod, samples in (
        *((counter.pod, counter.samples) for counter in metrics.requests),
        *((bucket.pod, bucket.samples) for bucket in metrics.latencies),
    ):
        if pod not in metrics.scrapes:
            times.setdefault(pod, set()).update(at for at, _ in samples)
    return dict(metrics.scrapes) | {pod: tuple(sorted(known)) for pod, known in times.items()}


def covered_from(view: MetricsView) -> float:
    """The oldest scrape in a view in seconds since the epoch; ``inf`` where there is none."""
    oldest = (times[0] for metrics in view.revisions.values() for times in scrape_times(metrics).values() if times)
    return min(oldest, default=float("inf"))
