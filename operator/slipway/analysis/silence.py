"""Whether a revision that is to get no requests still gets some, by what servers or the mesh count.

A weight of 0 that the router's object holds is not yet one that every proxy has learned. Requests tell.
"""

from collections.abc import Iterator

from slipway.api.counters import covered_from, increases, scrape_times
from slipway.api.samples import CounterSeries, MetricsView, RevisionMetrics

__all__ = ["still_asked"]

FRESH = 3
"""Scrape intervals within which a source has to have been scraped to tell anything."""


def still_asked(view: MetricsView, revision: str, since: float) -> bool:
    """Whether requests came in the newest scrape interval that begins after ``since`` (seconds since the epoch).

    True as well while no such interval has been seen of a source that is being scraped. False where nobody counts:
    then there is nothing to wait for.
    """
    if not view.available:
        return False
    metrics = view.of(revision)
    for pod, scrapes in scrape_times(metrics).items():
        if not scrapes or scrapes[-1] < view.at - FRESH * view.scrape_interval:
            continue
        begun = scrapes[-2] if len(scrapes) > 1 else scrapes[-1] - view.scrape_interval
        if begun < since or any(_counted(series, scrapes, view, begun) for series in _series(metrics, pod)):
            return True
    return False


def _series(metrics: RevisionMetrics, pod: str) -> Iterator[CounterSeries]:
    return (series for series in metrics.requests if series.pod == pod)


def _counted(series: CounterSeries, scrapes: tuple[float, ...], view: MetricsView, begun: float) -> bool:
    found = increases(series.samples, scrapes, covered_from(view), view.scrape_interval)
    return any(increase.amount > 0 and increase.at > begun for increase in found)
