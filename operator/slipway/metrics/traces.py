"""Prometheus' answers as traces: one series with its raw scrapes."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["AnswerError", "Trace", "bridged", "finite", "mended", "parse", "stitch"]

_METRIC_LABELS = frozenset(
    {"__name__", "model", "version", "revision", "code", "shadow", "le", "candidate", "pair", "result", "origin"}
)
"""Labels that the server itself gives, ``origin`` being what another server's had besides; the others say who scraped
it, and from where."""


_COUNTERS = ("_total", "_count", "_sum", "_bucket")
"""How names of counters end."""
_OF_THE_RUNTIME = "slipway_model_ready"
"""Only our own runtime exports it, whose counters exist at 0 from the start, but for ``_ON_DEMAND``."""
_ON_DEMAND = "slipway_shadow_comparisons_total"
EXPORTED = "exported_"
"""What Prometheus puts before a label whose name scraping has taken."""


class AnswerError(Exception):
    """Prometheus answered something that is no list of series."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One series: its labels and its scrapes as ``(seconds since the epoch, value)``, ascending."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """Name of the metric."""
        return self.labels.get("__name__", "")

    @property
    def newest(self) -> tuple[float, float]:
        """The newest scrape."""
        return self.samples[-1]

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """The labels that the server gave."""
        return tuple(sorted((name, value) for name, value in self.labels.items() if name in _METRIC_LABELS))

    @property
    def target(self) -> tuple[tuple[str, str], ...]:
        """The labels that scraping added."""
        return tuple(sorted((name, value) for name, value in self.labels.items() if name not in _METRIC_LABELS))


def parse(result: Any) -> list[Trace]:
    """The traces of a range or instant query's result, without empty ones. Raises AnswerError for anything else."""
    try:
        traces = [_trace(item) for item in result]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise AnswerError(f"Prometheus answered something that is no list of series: {error!r}") from error
    return [trace for trace in traces if trace.samples]


def _trace(item: Mapping[str, Any]) -> Trace:
    values = item["values"] if "values" in item else [item["value"]] if "value" in item else _of_histogram(item)
    labels = {str(name): str(value) for name, value in item["metric"].items()}
    return Trace(_given_back(labels), tuple(sorted((float(at), float(value)) for at, value in values)))


def _of_histogram(item: Mapping[str, Any]) -> list[Any]:
    """Nothing: a native histogram by one of our names is somebody else's, and no reason to read none of the others."""
    if "histograms" not in item and "histogram" not in item:
        raise KeyError("values")
    return []


def _given_back(labels: dict[str, str]) -> dict[str, str]:
    """Labels with a server's own under their own names again.

    Where scraping turns all labels of pods into labels of series, and pods are labelled ``version`` as Istio's
    dashboards like it, Prometheus renames the server's own ``version`` to ``exported_version``.
    """
    for name in _METRIC_LABELS:
        own = labels.pop(f"{EXPORTED}{name}", None)
        if own is not None:
            labels[name] = own
    return labels


def stitch(traces: Iterable[Trace]) -> list[Trace]:
    """The traces of one pod as if one scraper had made them.

    Two scrape jobs, or two replicas of Prometheus behind one query front, give every series twice, and adding them
    would count every request twice. The target that was scraped last is taken; what others saw before it began is put
    in front, so that a renamed job does not look like new pods.
    """
    by_target: dict[tuple[tuple[str, str], ...], list[Trace]] = {}
    for trace in traces:
        by_target.setdefault(trace.target, []).append(trace)
    if len(by_target) <= 1:
        return [trace for group in by_target.values() for trace in group]
    chosen = max(sorted(by_target), key=lambda target: max(trace.newest[0] for trace in by_target[target]))
    begin = min(trace.samples[0][0] for trace in by_target[chosen])
    earlier = stitch(
        Trace(trace.labels, before)
        for target, group in by_target.items()
        if target != chosen
        for trace in group
        if (before := tuple(sample for sample in trace.samples if sample[0] < begin))
    )
    return _joined(earlier, by_target[chosen])


def _joined(earlier: list[Trace], later: list[Trace]) -> list[Trace]:
    by_identity = {trace.identity: trace for trace in earlier}
    for trace in later:
        before = by_identity.get(trace.identity)
        samples = (*before.samples, *trace.samples) if before is not None else trace.samples
        by_identity[trace.identity] = Trace(trace.labels, samples)
    return list(by_identity.values())


def finite(samples: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """The scrapes whose value can be a counter's."""
    return tuple((at, value) for at, value in samples if math.isfinite(value) and value >= 0)


def mended(samples: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """A counter's scrapes with what it said before in place of what a counter cannot say.

    To leave those out would look like scrapes without the counter, which prove that it was 0: all that it ever counted
    would seem to have come once it can be read again. Before the first good value that one stands; nothing without any.
    """
    good = finite(samples)
    if len(good) == len(samples) or not good:
        return good
    last, found = good[0][1], []
    for at, value in samples:
        last = value if math.isfinite(value) and value >= 0 else last
        found.append((at, last))
    return tuple(found)


def bridged(traces: Iterable[Trace], scrapes: Sequence[float]) -> Iterator[Trace]:
    """The traces of one server with its counters carried over scrapes that hold none of their name.

    A counter of one status code may be missing, which proves that it was 0; a server that has lost them all for a while
    and then goes on from where it was has been counting all the time. ``scrapes`` are ascending.
    """
    families: dict[str, list[Trace]] = {}
    for trace in traces:
        families.setdefault(trace.name, []).append(trace)
    ready = min((trace.samples[0][0] for trace in families.get(_OF_THE_RUNTIME, ())), default=math.inf)
    for name, family in families.items():
        gaps = _gaps(family, scrapes) if name.endswith(_COUNTERS) else ()
        carried = [Trace(trace.labels, _carried(trace.samples, gaps)) for trace in family] if gaps else family
        first = min(trace.samples[0][0] for trace in family)
        late = ready < first and name.endswith(_COUNTERS) and name != _ON_DEMAND
        yield from (_begun(trace, first, scrapes) for trace in carried) if late else carried


def _begun(trace: Trace, first: float, scrapes: Sequence[float]) -> Trace:
    """A trace that begins with the first of its name, as one that did not count from 0 only then: that was dropped."""
    begin, value = trace.samples[0]
    if begin > first:
        return trace
    before = scrapes[: bisect_left(scrapes, first)]
    return Trace(trace.labels, (*((at, value) for at in before), *trace.samples))


def _gaps(family: Sequence[Trace], scrapes: Sequence[float]) -> Sequence[float]:
    """The scrapes between the first and the last of any of these at which there was none of them."""
    longest = max(family, key=lambda trace: len(trace.samples)).samples
    within = bisect_right(scrapes, longest[-1][0]) - bisect_left(scrapes, longest[0][0])
    if within <= len(longest):
        return ()
    present = {at for trace in family for at, _ in trace.samples}
    first, last = min(present), max(present)
    return [at for at in scrapes if first < at < last and at not in present]


def _carried(samples: tuple[tuple[float, float], ...], gaps: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """The samples with what they gained over a gap spread evenly over it; as they are where the counter began anew."""
    times = [at for at, _ in samples]
    found = list(samples)
    for at in gaps:
        after = bisect_right(times, at)
        if 0 < after < len(samples):
            (began, before), (ended, value) = samples[after - 1], samples[after]
            if value >= before:
                share = (at - began) / (ended - began)
                found.append((at, before + math.floor(share * (value - before))))
    return tuple(sorted(found)) if len(found) > len(samples) else samples
