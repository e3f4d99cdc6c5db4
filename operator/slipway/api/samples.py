"""What metrics say of the revisions of one ModelDeployment: typed samples, and raw counters as evidence.

A sample is a value together with how far it can be trusted. Zero is a value only with proof that its source is
alive; a source that says nothing gives ``MISSING``, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "MISSING",
    "CounterSeries",
    "LatencySeries",
    "MetricsView",
    "Quality",
    "RevisionMetrics",
    "Sample",
    "ShadowPair",
    "ShadowResult",
    "ShadowSeries",
]


class Quality(StrEnum):
    """How far a sample can be trusted."""

    OK = "OK"
    MISSING = "Missing"
    STALE = "Stale"
    INVALID = "Invalid"
    PARTIAL = "Partial"


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured value; ``value`` counts only where ``quality`` is OK (or, as a lower bound, PARTIAL)."""

    value: float = 0.0
    quality: Quality = Quality.MISSING
    at: float = 0.0
    """When the newest underlying sample was scraped, in seconds since the epoch."""
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the value can be used for any decision."""
        return self.quality is Quality.OK


MISSING = Sample()


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """Raw scrapes of one cumulative request counter of one pod: ``(seconds since the epoch, value)``, ascending."""

    pod: str
    code: str
    """HTTP status code as text."""
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LatencySeries:
    """Raw scrapes of one cumulative histogram bucket of one pod: requests that took at most ``bound`` seconds."""

    pod: str
    bound: float
    """Upper bound in seconds; ``inf`` counts all requests."""
    samples: tuple[tuple[float, float], ...]


class ShadowPair(StrEnum):
    """Whose second answer was compared with the one that the user got."""

    CANDIDATE = "candidate"
    SELF = "self"


class ShadowResult(StrEnum):
    """What became of a repeated request; dropped ones have had no answer to compare."""

    AGREE = "agree"
    DIFFER = "differ"
    ERROR = "error"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ShadowSeries:
    """Raw scrapes of one cumulative counter of comparisons, made by a pod of stable for a candidate."""

    pod: str
    candidate: str
    """Revision."""
    pair: ShadowPair
    result: ShadowResult
    samples: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class RevisionMetrics:
    """Metrics of one revision, summed or averaged over its pods; shadow requests are never in them."""

    revision: str
    arrivals: Sample = MISSING
    """Requests per second that came to the servers, whatever became of them."""
    served: Sample = MISSING
    """Requests per second answered with 2xx."""
    error_rate: Sample = MISSING
    """Share of requests answered with 5xx, over the rate window."""
    latency_p99: Sample = MISSING
    """Estimated 99th percentile in seconds, for display."""
    in_flight: Sample = MISSING
    """Requests in flight, summed over pods."""
    queue_time: Sample = MISSING
    """Mean seconds that requests waited in the server, over the rate window."""
    queue_depth: Sample = MISSING
    """Requests waiting, summed over pods."""
    gpu_utilization: Sample = MISSING
    """Mean over pods in per cent."""
    gpu_source: str = ""
    """``dcgm`` or ``executor-busy``."""
    gpu_exported: bool = False
    """Whether a GPU exporter measures any of the pods, or names one whose GPU it cannot tell from a neighbour's."""
    gpu_shared: bool = False
    """Whether each pod's GPU is one that the exporter cannot tell from a neighbour's."""
    gpu_memory: Sample = MISSING
    """Per cent in use, of the pod that uses most."""
    reporting_pods: frozenset[str] = frozenset()
    """Pods with a fresh scrape."""
    uncounted_pods: frozenset[str] = frozenset()
    """Pods whose fresh scrape holds no counter of requests, which are none only as long as there never was one."""
    caveat: str = ""
    """Why pods or series may be missing from all of this, in the words of whoever answered; empty where none are."""
    pod_loads: Mapping[str, float] = field(default_factory=dict)
    """Requests in flight plus requests waiting, of each pod whose fresh scrape tells them. What waits counts twice
    where a server has it among those in flight: all of its work is still to be done."""
    scrapes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """When each pod was scraped, ascending, whatever it had to say: proof that a counter without a sample was 0."""
    requests: tuple[CounterSeries, ...] = ()
    """Raw request counters for evidence."""
    latencies: tuple[LatencySeries, ...] = ()
    """Raw histogram buckets for evidence."""
    shadows: tuple[ShadowSeries, ...] = ()
    """Raw counters of comparisons that these pods made with a candidate's answers."""


@dataclass(frozen=True, slots=True)
class MetricsView:
    """The metrics snapshot of one ModelDeployment."""

    at: float = 0.0
    """When the snapshot was taken, in seconds since the epoch."""
    available: bool = False
    """Whether Prometheus answered."""
    error: str = "no snapshot yet"
    scrape_interval: float = 15.0
    """Seconds between scrapes, as seen in the raw samples or configured."""
    revisions: Mapping[str, RevisionMetrics] = field(default_factory=dict)
    gateway: Sample = MISSING
    """Requests per second that the mesh's clients send to the Service, answered or not; a lower bound of demand."""
    queries: Mapping[str, Sample] = field(default_factory=dict)
    """Values of the user's own expressions, by their text as Prometheus was asked."""

    def of(self, revision: str) -> RevisionMetrics:
        """Metrics of a revision; all missing when nothing is known."""
        return self.revisions.get(revision) or RevisionMetrics(revision)
