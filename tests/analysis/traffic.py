"""Scrape histories of two revisions under traffic that a test describes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from slipway.api.samples import CounterSeries, LatencySeries, MetricsView, RevisionMetrics

CANDIDATE = "m-v2-22222222"
STABLE = "m-v1-11111111"
BOUND = 0.3
RANGE = 300.0

History = list[tuple[float, int, int, int]]
"""Scrape time, and so far: requests, failed ones, slow ones."""


@dataclass
class Pod:
    """One pod's counters, scraped every ``interval`` seconds from ``begin`` on."""

    name: str
    history: History = field(default_factory=list)

    @classmethod
    def steady(
        cls,
        name: str,
        per_scrape: int,
        error_rate: float,
        seed: int,
        *,
        slow_rate: float = 0.0,
        begin: float = 3.0,
        end: float = 2000.0,
        interval: float = 15.0,
        rate_at: Callable[[float], float] | None = None,
    ) -> "Pod":
        """A pod with a constant number of requests between scrapes."""
        random = np.random.default_rng(seed)
        pod, requests, bad, slow = cls(name), 0, 0, 0
        for at in np.arange(begin, end, interval):
            pod.history.append((float(at), requests, bad, slow))
            requests += per_scrape
            bad += int(random.binomial(per_scrape, rate_at(float(at)) if rate_at else error_rate))
            slow += int(random.binomial(per_scrape, slow_rate))
        return pod

    def cut(self, now: float) -> History:
        """What a query at ``now`` sees."""
        return [entry for entry in self.history if now - RANGE <= entry[0] <= now]


def revision(name: str, pods: list[Pod], now: float) -> RevisionMetrics:
    """The metrics of a revision; a counter that is still 0 has no series, as in a real server."""
    requests: list[CounterSeries] = []
    latencies: list[LatencySeries] = []
    scrapes = {}
    for pod in pods:
        seen = pod.cut(now)
        if not seen:
            continue
        scrapes[pod.name] = tuple(at for at, *_ in seen)
        for code, samples in (
            ("200", tuple((at, float(total - bad)) for at, total, bad, _ in seen if total - bad)),
            ("503", tuple((at, float(bad)) for at, _, bad, _ in seen if bad)),
        ):
            if samples:
                requests.append(CounterSeries(pod.name, code, samples))
        latencies.append(LatencySeries(pod.name, 0.1, tuple((at, 0.0) for at, *_ in seen)))
        latencies.append(LatencySeries(pod.name, BOUND, tuple((at, float(all_ - slow)) for at, all_, _, slow in seen)))
        latencies.append(LatencySeries(pod.name, float("inf"), tuple((at, float(all_)) for at, all_, *_ in seen)))
    return RevisionMetrics(name, scrapes=scrapes, requests=tuple(requests), latencies=tuple(latencies))


def view(candidate: list[Pod], stable: list[Pod], now: float, interval: float = 15.0) -> MetricsView:
    """The metrics view of both revisions."""
    revisions = {CANDIDATE: revision(CANDIDATE, candidate, now), STABLE: revision(STABLE, stable, now)}
    return MetricsView(now, True, "", interval, revisions)
