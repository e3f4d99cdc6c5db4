"""Counters, gauges and histograms in the Prometheus text format, cheap enough for every request.

All series of a process are touched by its event-loop thread only, so there are no locks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slipway_runtime.metrics.sheet import Kind, Merge, Series, Sheet

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def label_text(labels: Mapping[str, str]) -> str:
    """Labels in the text format."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


class Value:
    """One series of a counter or a gauge."""

    __slots__ = ("_cells", "_index")

    def __init__(self, sheet: Sheet, series: Series) -> None:
        self._index = sheet.place(series)
        self._cells = sheet.cells

    @property
    def value(self) -> float:
        """This process's value."""
        return self._cells[self._index]

    def add(self, amount: float = 1.0) -> None:
        """Count up (or, for gauges, down)."""
        self._cells[self._index] += amount

    def set(self, value: float) -> None:
        """Replace the value."""
        self._cells[self._index] = value


class Histogram:
    """One series of a histogram with fixed upper bounds."""

    __slots__ = ("_bounds", "_cells", "_start", "_sum")

    def __init__(self, sheet: Sheet, series: Series) -> None:
        self._bounds = series.bounds
        self._start = sheet.place(series)
        self._sum = self._start + series.width - 1
        self._cells = sheet.cells

    def observe(self, value: float) -> None:
        """Count a value; a value equal to a bound belongs to that bound, as Prometheus defines it."""
        self._cells[self._start + bisect_left(self._bounds, value)] += 1
        self._cells[self._sum] += value


class Registry:
    """Makes series that have some labels in common, on a sheet that others may use as well."""

    def __init__(self, constant: Mapping[str, str], sheet: Sheet | None = None) -> None:
        """``constant`` labels are on every series."""
        self.sheet = sheet if sheet is not None else Sheet()
        self._constant = dict(constant)

    def value(self, kind: str, name: str, text: str, merge: Merge = Merge.SUM, **labels: str) -> Value:
        """A series of a ``counter`` or ``gauge``; ``merge`` says what it is over several worker processes."""
        return Value(self.sheet, Series(Kind(kind), name, self._labels(labels), text, merge))

    def histogram(self, name: str, text: str, bounds: Sequence[float], **labels: str) -> Histogram:
        """A series of a histogram."""
        series = Series(Kind.HISTOGRAM, name, self._labels(labels), text, bounds=tuple(bounds))
        return Histogram(self.sheet, series)

    def _labels(self, labels: Mapping[str, str]) -> str:
        return label_text({**self._constant, **labels})

    def render(self) -> bytes:
        """The exposition of everything on the sheet."""
        return render(self.sheet)


def render(sheet: Sheet) -> bytes:
    """The exposition of all series of all workers, by families in the order in which they were made.

    A gauge that is not a number is not known at the moment: it is left out.
    """
    families: dict[str, list[tuple[Series, list[float]]]] = {}
    for series, values in sheet.values():
        if series.kind is not Kind.STATISTIC:
            families.setdefault(series.name, []).append((series, values))
    return "".join(f"{line}\n" for line in _lines(families)).encode()


def _lines(families: Mapping[str, list[tuple[Series, list[float]]]]) -> Iterable[str]:
    for name, members in families.items():
        first = members[0][0]
        yield f"# HELP {name} {first.text}"
        yield f"# TYPE {name} {first.kind}"
        for series, values in members:
            if series.kind is Kind.HISTOGRAM:
                yield from _histogram_lines(series, values)
            elif not math.isnan(values[0]):
                yield f"{name}{{{series.labels}}} {values[0]:.17g}" if series.labels else f"{name} {values[0]:.17g}"


def _histogram_lines(series: Series, values: Sequence[float]) -> Iterator[str]:
    """Cumulative buckets, sum and count."""
    name, labels, total = series.name, series.labels, 0
    comma = "," if labels else ""
    for bound, count in zip((*series.bounds, float("inf")), values[:-1], strict=True):
        total += int(count)
        text = "+Inf" if bound == float("inf") else f"{bound:.10g}"
        yield f'{name}_bucket{{{labels}{comma}le="{text}"}} {total}'
    yield f"{name}_sum{{{labels}}} {values[-1]:.17g}"
    yield f"{name}_count{{{labels}}} {total}"
