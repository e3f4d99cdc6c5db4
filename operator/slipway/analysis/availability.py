"""Whether the metrics can be evidence at all: silence of the source is never one.

Messages say since when, not for how long, so that a status does not change while nothing happens.
"""

from dataclasses import dataclass

from slipway.analysis.reasons import Reason
from slipway.api.counters import scrape_times
from slipway.api.samples import MetricsView
from slipway.api.timestamps import whole_second

__all__ = ["Silence", "silence"]

SHORTEST_PATIENCE = 30.0
"""Seconds without a scrape that are never called stale."""
MISSED_SCRAPES = 3.0


@dataclass(frozen=True, slots=True)
class Silence:
    """Why nothing can be said at present."""

    reason: Reason
    message: str


def silence(view: MetricsView, candidate: str, stable: str, now: float) -> Silence | None:
    """What is wrong with either revision's metrics at ``now`` (seconds since the epoch); None if nothing is."""
    if not view.available:
        return Silence(Reason.METRICS_UNAVAILABLE, f"Prometheus gave no answer: {view.error}")
    patience = max(SHORTEST_PATIENCE, MISSED_SCRAPES * view.scrape_interval)
    for revision in (candidate, stable):
        newest = max((times[-1] for times in scrape_times(view.of(revision)).values() if times), default=None)
        if newest is None:
            message = (
                f"Prometheus knows no pod of {revision}: check that its pods are scraped"
                " and that scraping adds the labels namespace and pod"
            )
            return Silence(Reason.METRICS_UNAVAILABLE, message)
        if now - newest > patience:
            message = (
                f"{revision} was last scraped at {whole_second(newest)}; {patience:g}s without a scrape are tolerated"
            )
            return Silence(Reason.METRICS_STALE, message)
    return None
