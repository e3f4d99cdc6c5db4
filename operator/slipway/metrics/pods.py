"""One pod of a model server as its metrics show it."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from slipway.api.counters import Increase, increases
from slipway.api.samples import CounterSeries, LatencySeries, Quality, Sample, ShadowPair, ShadowResult, ShadowSeries
from slipway.api.timestamps import whole_second
from slipway.metrics.traces import Trace, bridged, finite, mended

__all__ = [
    "BUCKETS",
    "IN_FLIGHT",
    "QUEUE_COUNT",
    "REQUESTS",
    "SCRAPED",
    "Pace",
    "PodKey",
    "PodMetrics",
    "bucket_bound",
]

REQUESTS = "slipway_requests_total"
IN_FLIGHT = "slipway_requests_in_flight"
BUCKETS = "slipway_request_duration_seconds_bucket"
SHADOWS = "slipway_shadow_comparisons_total"
QUEUE_COUNT = "slipway_queue_duration_seconds_count"
SCRAPED = "slipway_scraped"
"""That a server of another kind was scraped, whatever it had to say."""


@dataclass(frozen=True, slots=True)
class PodKey:
    """Whose metrics they are."""

    namespace: str
    model: str
    revision: str
    pod: str

    @classmethod
    def of(cls, trace: Trace) -> "PodKey | None":
        """The pod that a server's series belongs to; None where scraping adds no namespace or pod."""
        labels = trace.labels
        key = cls(*(labels.get(name, "") for name in ("namespace", "model", "revision", "pod")))
        return key if all((key.namespace, key.model, key.revision, key.pod)) else None


@dataclass(frozen=True, slots=True)
class Pace:
    """How time is looked at in one snapshot; seconds, and seconds since the epoch."""

    now: float
    rate_window: float
    scrape_interval: float
    covered: float = math.inf
    """The oldest scrape of the model."""

    @property
    def patience(self) -> float:
        """Age up to which a scrape is fresh."""
        return max(20.0, 3 * self.scrape_interval)


@dataclass(frozen=True, slots=True)
class PodMetrics:
    """The scrapes of one pod."""

    pod: str
    traces: tuple[Trace, ...]
    scrapes: tuple[float, ...]
    """When it was scraped, ascending."""

    @classmethod
    def of(cls, pod: str, traces: Iterable[Trace]) -> "PodMetrics":
        """Collect the times of all traces."""
        known = tuple(traces)
        scrapes = tuple(sorted({at for trace in known for at, _ in trace.samples}))
        return cls(pod, tuple(bridged(known, scrapes)), scrapes)

    def named(self, name: str) -> Iterator[Trace]:
        """The traces of a metric."""
        return (trace for trace in self.traces if trace.name == name)

    def fresh(self, pace: Pace) -> bool:
        """Whether the pod was scraped lately."""
        return pace.now - self.scrapes[-1] <= pace.patience

    def requests(self) -> Iterator[CounterSeries]:
        """Request counters as evidence."""
        for trace in self.named(REQUESTS):
            samples = mended(trace.samples)
            if samples:
                yield CounterSeries(self.pod, trace.labels.get("code", ""), samples)

    def latencies(self) -> Iterator[LatencySeries]:
        """Histogram buckets as evidence."""
        for trace in self.named(BUCKETS):
            samples, bound = mended(trace.samples), bucket_bound(trace)
            if samples and bound is not None:
                yield LatencySeries(self.pod, bound, samples)

    def shadows(self) -> Iterator[ShadowSeries]:
        """Counters of comparisons as evidence; words that we do not know are none."""
        for trace in self.named(SHADOWS):
            samples, labels = mended(trace.samples), trace.labels
            known = labels.get("pair") in set(ShadowPair) and labels.get("result") in set(ShadowResult)
            if samples and known:
                pair, result = ShadowPair(labels["pair"]), ShadowResult(labels["result"])
                yield ShadowSeries(self.pod, labels.get("candidate", ""), pair, result, samples)

    def gauge(self, name: str, pace: Pace, combine: Callable[[Iterable[float]], float] = sum) -> Sample:
        """The newest value of a gauge, summed over its series unless ``combine`` says otherwise."""
        traces = tuple(self.named(name))
        if not traces:
            return Sample(reason=f"{self.pod} exports no {name}")
        at = min(trace.newest[0] for trace in traces)
        value = combine(trace.newest[1] for trace in traces)
        if pace.now - at > pace.patience:
            return Sample(0.0, Quality.STALE, at, f"{self.pod}: {name} was last scraped at {whole_second(at)}")
        if not math.isfinite(value) or any(trace.newest[1] < 0 for trace in traces):
            return Sample(0.0, Quality.INVALID, at, f"{self.pod}: {name} is {value:g}")
        return Sample(value, Quality.OK, at)

    def gained(self, name: str, pace: Pace) -> Sample:
        """What a counter, summed over its series, gained within the rate window.

        0 where the server is alive and has never counted anything; no value before the second scrape, and an old one
        where the server is scraped without the counter since.
        """
        span = self.span(pace)
        if span is None:
            return Sample(0.0, Quality.MISSING, self.scrapes[-1], f"{self.pod} was scraped only once so far")
        traces = tuple(self.named(name))
        if any(not math.isfinite(trace.newest[1]) or trace.newest[1] < 0 for trace in traces):
            return Sample(0.0, Quality.INVALID, span[1], f"{self.pod}: {name} is no number that a counter can have")
        if traces and not self.counts(name, pace):
            at = max(trace.newest[0] for trace in traces)
            return Sample(0.0, Quality.STALE, at, f"{self.pod}: {name} was last scraped at {whole_second(at)}")
        amount = sum(increase.amount for trace in traces for increase in self.within(trace, pace))
        return Sample(amount, Quality.OK, span[1])

    def rate(self, name: str, pace: Pace) -> Sample:
        """What a counter gained per second."""
        gained, span = self.gained(name, pace), self.span(pace)
        if not gained.ok or span is None:
            return gained
        return Sample(gained.value / (span[1] - span[0]), Quality.OK, gained.at)

    def arrivals(self, pace: Pace) -> Sample:
        """Requests that came per second: those that ended, and what more are in flight than at the beginning.

        Under overload a server ends no more than it can, while its queue grows: counting ends alone would hide demand.
        """
        if self.traces and all(trace.name == SCRAPED for trace in self.traces):
            reason = f"{self.pod} exports no metrics that are known"
            return Sample(0.0, Quality.MISSING, self.scrapes[-1], reason)
        ended, span = self.rate(REQUESTS, pace), self.span(pace)
        if not ended.ok or span is None:
            return ended
        doubt = self._doubt_of_arrivals(pace)
        grown = 0.0
        for trace in self.named(IN_FLIGHT):
            samples = finite(trace.samples)
            before = bisect_right(samples, (span[0], math.inf)) - 1
            if samples and before >= 0:
                grown += samples[-1][1] - samples[before][1]
        quality = Quality.PARTIAL if doubt else Quality.OK
        return Sample(max(0.0, ended.value + grown / (span[1] - span[0])), quality, ended.at, doubt)

    def counts(self, name: str, pace: Pace) -> bool:
        """Whether the newest scrapes hold a counter, so that it can be told from one that was lost on the way."""
        return any(pace.now - trace.newest[0] <= pace.patience for trace in self.named(name))

    def _doubt_of_arrivals(self, pace: Pace) -> str:
        """Why requests that ended may not be all that came; empty while nothing speaks against it."""
        in_flight = self.gauge(IN_FLIGHT, pace)
        if in_flight.quality in {Quality.INVALID, Quality.STALE}:
            return in_flight.reason
        if not self.counts(REQUESTS, pace) and self.gained(QUEUE_COUNT, pace).value > 0:
            return f"{self.pod} takes requests and exports no {REQUESTS}"
        return ""

    def within(self, trace: Trace, pace: Pace) -> Iterator[Increase]:
        """A counter's increases within the rate window."""
        span = self.span(pace)
        if span is None:
            return
        begin = max(bisect_right(trace.samples, (span[0], math.inf)) - 1, 0)
        for increase in increases(mended(trace.samples)[begin:], self.scrapes, pace.covered, pace.scrape_interval):
            if increase.at > span[0]:
                yield increase

    def span(self, pace: Pace) -> tuple[float, float] | None:
        """The scrapes between which rates are taken; None before there are two."""
        begin = max((at for at in self.scrapes if at <= pace.now - pace.rate_window), default=self.scrapes[0])
        return (begin, self.scrapes[-1]) if begin < self.scrapes[-1] else None


def bucket_bound(trace: Trace) -> float | None:
    """The upper bound of a histogram bucket in seconds; None where the label is no number."""
    try:
        return float(trace.labels.get("le", ""))
    except ValueError:
        return None
