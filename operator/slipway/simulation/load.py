"""Load over time: requests per second, one value per second, from a file of arrivals or of rates."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from slipway.api.errors import SlipwayError

__all__ = ["LONGEST", "MOST", "Load", "load_of_points", "read_load"]

TIME_COLUMNS = ("timestamp", "time", "t", "at", "seconds")
RATE_COLUMNS = ("rate", "qps", "rps", "requests_per_second", "value")
COUNT_COLUMNS = ("requests", "count")
MOST = 1e9
"""Requests per second or row; nobody has more, and sums stay exact."""
LATEST = 1e11
"""Seconds since the epoch, in the year 5138; numbers beyond are milliseconds."""
LONGEST = 14 * 86400
"""Seconds; a longer trace is cut up by whoever has it."""


@dataclass(frozen=True, slots=True)
class Load:
    """Requests per second; entry n is the mean of second n."""

    name: str
    rates: tuple[float, ...]

    @property
    def duration(self) -> int:
        """Seconds."""
        return len(self.rates)

    @property
    def requests(self) -> float:
        """All requests."""
        return math.fsum(self.rates)

    def scaled(self, factor: float) -> "Load":
        """The same shape with ``factor`` times the requests."""
        return Load(self.name, tuple(rate * factor for rate in self.rates))


def read_load(path: Path) -> Load:
    """Read a CSV file; raises SlipwayError for one that holds no load.

    The first line names the columns. One column is the time (``timestamp``, ``time``, ``t``: seconds or ISO 8601).
    With a column ``rate``, ``qps`` or ``rps`` each row is a rate that holds until the next row, with ``requests`` or
    ``count`` a number of requests spread until the next row; without either, each row is one arrival. Counts of rows
    with the same time are added up, of rates the highest is taken.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            columns = {name.strip().lower(): name for name in rows.fieldnames or () if name}
            rates = _rates(columns, rows, path)
    except OSError as error:
        raise SlipwayError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SlipwayError(f"{path}: no CSV: {error}") from error
    if not any(rates):
        raise SlipwayError(f"{path} holds no requests")
    return Load(path.stem, tuple(rates))


def load_of_points(name: str, points: Sequence[tuple[float, float]]) -> Load:
    """A load from rates at moments, each holding until the next; what is no number counts as no requests."""
    known = [(at, value if math.isfinite(value) and value >= 0 else 0.0) for at, value in sorted(points)]
    return Load(name, tuple(_of_spans(known, lambda amount, _: amount)))


def _rates(columns: Mapping[str, str], rows: Iterator[Mapping[str, str]], path: Path) -> list[float]:
    time = next((columns[name] for name in TIME_COLUMNS if name in columns), None)
    if time is None:
        raise SlipwayError(f"{path}: no column is named {', '.join(TIME_COLUMNS[:3])}")
    rate = next((columns[name] for name in RATE_COLUMNS if name in columns), None)
    count = next((columns[name] for name in COUNT_COLUMNS if name in columns), None)
    value = rate or count
    points: list[tuple[float, float]] = []
    for number, row in enumerate(rows, 2):
        try:
            points.append((_seconds(row[time]), float(row[value]) if value else 1.0))
        except (ValueError, TypeError) as error:
            raise SlipwayError(f"{path}, line {number}: {error}") from error
        if not 0 <= points[-1][1] <= MOST:
            raise SlipwayError(f"{path}, line {number}: {points[-1][1]} is no number of requests")
        if not abs(points[-1][0]) <= LATEST:
            raise SlipwayError(f"{path}, line {number}: {row[time]} is no time in seconds or ISO 8601")
    if not points:
        return []
    points.sort()
    if points[-1][0] - points[0][0] > LONGEST:
        raise SlipwayError(f"{path} is longer than {LONGEST // 86400} days; cut it into parts")
    if value is None:
        return _of_arrivals(points)
    if rate:
        return _of_spans(points, lambda amount, _: amount)
    return _of_spans(_added(points), lambda amount, span: amount / span)


def _added(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    amounts: dict[float, float] = {}
    for at, amount in points:
        amounts[at] = amounts.get(at, 0.0) + amount
    return list(amounts.items())


def _of_arrivals(points: Sequence[tuple[float, float]]) -> list[float]:
    begin = points[0][0]
    rates = [0.0] * (int(points[-1][0] - begin) + 1)
    for at, amount in points:
        rates[int(at - begin)] += amount
    return rates


def _of_spans(points: Sequence[tuple[float, float]], rate: Callable[[float, float], float]) -> list[float]:
    begin = points[0][0]
    rates: list[float] = []
    # The last row lasts as long as the first, which is all that a trace says about it.
    last = next((at - begin for at, _ in points if at > begin), 1.0)
    ends = [at for at, _ in points[1:]] + [points[-1][0] + last]
    for (at, amount), end in zip(points, ends, strict=True):
        span = end - at
        if span > 0:
            rates += [rate(amount, span)] * (round(end - begin) - len(rates))
    return rates


def _seconds(text: str) -> float:
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
