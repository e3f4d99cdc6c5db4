"""The numbers behind all series of a server: in a list, or in files that its worker processes share.

A worker writes only its own cells and reads everybody's, so nobody waits for anybody: whichever worker is asked
answers with the sum of all, and what a worker had counted stays counted when it dies. Its successor counts on.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

_CELLS = 65_536
_CELL_BYTES = 8


class Kind(StrEnum):
    """What a series is. A ``STATISTIC`` (count and seconds) is for the statistics call, not for Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    STATISTIC = "statistic"


class Merge(StrEnum):
    """What the value of several workers is."""

    SUM = "sum"
    MEAN = "mean"
    HIGHEST = "highest"


class Cells(Protocol):
    """Numbers by position."""

    def __getitem__(self, index: int, /) -> float:
        """The number there."""

    def __setitem__(self, index: int, value: float, /) -> None:
        """Replace it."""


@dataclass(frozen=True)
class Series:
    """A series' identity; ``labels`` is in the text format. The same series has equal fields in every worker."""

    kind: Kind
    name: str
    labels: str
    text: str = field(default="", compare=False)
    merge: Merge = Merge.SUM
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Cells it takes: a histogram has one per bound, one for larger values, and the sum."""
        if self.kind is Kind.HISTOGRAM:
            return len(self.bounds) + 2
        return 2 if self.kind is Kind.STATISTIC else 1

    def line(self) -> bytes:
        """The series in a worker's directory of series."""
        values = [self.kind, self.name, self.labels, self.text, self.merge, self.bounds]
        return json.dumps(values).encode() + b"\n"

    @staticmethod
    def read(line: bytes) -> Series:
        """The series of a directory's line."""
        kind, name, labels, text, merge, bounds = json.loads(line)
        return Series(Kind(kind), name, labels, text, Merge(merge), tuple(bounds))

    def merged(self, rows: list[list[float]]) -> list[float]:
        """One row of values from those of all workers."""
        columns = zip(*rows, strict=True)
        match self.merge:
            case Merge.SUM:
                return [sum(column) for column in columns]
            case Merge.MEAN:
                return [sum(column) / len(column) for column in columns]
            case Merge.HIGHEST:
                return [max(column) for column in columns]


class Sheet:
    """The cells of a server of one process."""

    def __init__(self) -> None:
        self._own: list[float] = []
        self._places: dict[Series, int] = {}

    @property
    def cells(self) -> Cells:
        """Where the series' values are; positions never change."""
        return self._own

    def place(self, series: Series) -> int:
        """The position of the series' first cell; the same for the same series."""
        start = self._places.get(series)
        if start is None:
            start = self._places[series] = len(self._own)
            self._own.extend([0.0] * series.width)
        return start

    def rows(self) -> Mapping[Series, list[list[float]]]:
        """The values of every series, a list for each worker that has it."""
        own = self._own
        return {series: [own[start : start + series.width]] for series, start in self._places.items()}

    def values(self) -> Iterator[tuple[Series, list[float]]]:
        """Every series with its merged values, in the order in which the series were made."""
        for series, rows in self.rows().items():
            yield series, series.merged(rows)


class SharedSheet(Sheet):
    """The cells of worker ``slot``, in a file beside those of the other workers."""

    def __init__(self, folder: Path, slot: int) -> None:
        """Takes over what an earlier worker of the slot has counted. Raises OSError."""
        super().__init__()
        self._folder = folder
        self._slot = slot
        self._mine = _SlotFiles(folder, slot, create=True)
        self._others: dict[int, _SlotFiles] = {}
        self._places = self._mine.places
        clear_gauges(self._mine)

    @property
    def cells(self) -> Cells:
        """Where the series' values are; positions never change."""
        return self._mine.cells

    def place(self, series: Series) -> int:
        """The position of the series' first cell; the same for the same series, also in the worker's successor."""
        return self._mine.place(series)

    def rows(self) -> Mapping[Series, list[list[float]]]:
        """The values of every series, a list for each worker that has it."""
        found: dict[Series, list[list[float]]] = {}
        for files in (self._mine, *self._siblings()):
            files.read_places()
            for series, start in files.places.items():
                found.setdefault(series, []).append([files.cells[start + one] for one in range(series.width)])
        return found

    def _siblings(self) -> Iterator[_SlotFiles]:
        for path in self._folder.glob("*.series"):
            slot = int(path.stem)
            if slot != self._slot:
                if slot not in self._others:
                    self._others[slot] = _SlotFiles(self._folder, slot)
                yield self._others[slot]


class _SlotFiles:
    """Two files of a worker: ``N.cells`` with the numbers, ``N.series`` with what they are, in order."""

    def __init__(self, folder: Path, slot: int, *, create: bool = False) -> None:
        self._directory = folder / f"{slot}.series"
        self._read = 0
        self._end = 0
        self.places: dict[Series, int] = {}
        path = folder / f"{slot}.cells"
        # The numbers are there before anybody can see that there are series.
        self.cells = shared_cells(path, _CELLS)
        if create:
            self._directory.touch()
        self.read_places()

    def place(self, series: Series) -> int:
        start = self.places.get(series)
        if start is None:
            if self._end + series.width > _CELLS:
                raise MemoryError("the server has more series than its workers can share")
            with self._directory.open("ab") as file:
                file.write(series.line())
            self.read_places()
            start = self.places[series]
        return start

    def read_places(self) -> None:
        """See which series have come since the last time."""
        with self._directory.open("rb") as file:
            file.seek(self._read)
            news = file.read()
        # The last line may still be in the making.
        whole = news[: news.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            series = Series.read(line)
            self.places[series] = self._end
            self._end += series.width


def shared_cells(path: Path, count: int) -> memoryview[float]:
    """Numbers that all processes share that name the same file. Raises OSError."""
    with path.open("a+b") as file:
        if os.fstat(file.fileno()).st_size < count * _CELL_BYTES:
            os.truncate(file.fileno(), count * _CELL_BYTES)
        return memoryview(mmap.mmap(file.fileno(), count * _CELL_BYTES)).cast("d")


def clear_gauges(files: _SlotFiles) -> None:
    """Set what holds only while a process lives to 0."""
    for series, start in files.places.items():
        if series.kind is Kind.GAUGE:
            files.cells[start] = 0.0


def bury(folder: Path, slot: int) -> None:
    """The worker of the slot is dead: what it had in hand is nothing now; what it had counted stays."""
    if (folder / f"{slot}.series").exists():
        clear_gauges(_SlotFiles(folder, slot))
