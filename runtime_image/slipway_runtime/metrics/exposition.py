"""Counters, gauges and histograms in the Prometheus text format, cheap enough for every request.

All series are touched by the event-loop thread only, so there are no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


class Value:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        """Count up (or, for gauges, down)."""
        self.value += amount

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The series in text form."""
        yield f"{name}{{{labels}}} {self.value:.17g}"


class Histogram:
    """One series of a histogram with fixed upper bounds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value; a value equal to a bound belongs to that bound, as Prometheus defines it."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Cumulative buckets, sum and count."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            text = "+Inf" if bound == float("inf") else f"{bound:.10g}"
            yield f'{name}_bucket{{{labels},le="{text}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum:.17g}"
        yield f"{name}_count{{{labels}}} {total}"


class Registry:
    """The families of a process, rendered in the order they were made."""

    def __init__(self, constant: Mapping[str, str]) -> None:
        """``constant`` labels are on every series."""
        self._constant = dict(constant)
        self._families: dict[str, tuple[str, str, list[tuple[str, Value | Histogram]]]] = {}

    def value(self, kind: str, name: str, text: str, **labels: str) -> Value:
        """A new series of a ``counter`` or ``gauge``."""
        series = Value()
        self._add(kind, name, text, labels, series)
        return series

    def histogram(self, name: str, text: str, bounds: Sequence[float], **labels: str) -> Histogram:
        """A new series of a histogram."""
        series = Histogram(bounds)
        self._add("histogram", name, text, labels, series)
        return series

    def _add(self, kind: str, name: str, text: str, labels: Mapping[str, str], series: Value | Histogram) -> None:
        family = self._families.setdefault(name, (kind, text, []))
        family[2].append((_labels({**self._constant, **labels}), series))

    def render(self) -> bytes:
        """The whole exposition."""
        return "".join(f"{line}\n" for line in self._lines()).encode()

    def _lines(self) -> Iterable[str]:
        for name, (kind, text, series) in self._families.items():
            yield f"# HELP {name} {text}"
            yield f"# TYPE {name} {kind}"
            for labels, one in series:
                yield from one.lines(name, labels)
