"""The statistics extension: totals per model, in nanoseconds, over all worker processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from slipway_runtime.metrics.exposition import label_text
from slipway_runtime.metrics.sheet import Kind, Merge, Series, Sheet

_NS = 1_000_000_000
_BATCH = "batch"


class _Total:
    """A count and seconds, on a sheet."""

    __slots__ = ("_cells", "_index")

    def __init__(self, sheet: Sheet, series: Series) -> None:
        self._index = sheet.place(series)
        self._cells = sheet.cells

    def add(self, seconds: float, count: int = 1) -> None:
        self._cells[self._index] += count
        self._cells[self._index + 1] += seconds


class ModelStatistics:
    """Counters behind ``/stats``. ``inference_count`` counts rows, ``execution_count`` executions."""

    def __init__(self, sheet: Sheet | None = None, name: str = "", version: str = "") -> None:
        """``name`` and ``version`` tell models apart that share a ``sheet``."""
        self._sheet = sheet if sheet is not None else Sheet()
        self._model = {"model": name, "version": version}
        self._success = self._total("success")
        self._fail = self._total("fail")
        self._queue = self._total("queue")
        self._infer = self._total("compute_infer")
        self._executions = self._total("executions")
        self._cached = {hit: self._total(name) for hit, name in ((True, "cache_hit"), (False, "cache_miss"))}
        self._last = Series(Kind.STATISTIC, "last", label_text(self._model), merge=Merge.HIGHEST)
        self._last_at = self._sheet.place(self._last)
        self._batches: dict[int, _Total] = {}

    def _series(self, name: str, **labels: str) -> Series:
        return Series(Kind.STATISTIC, name, label_text({**self._model, **labels}))

    def _total(self, name: str, **labels: str) -> _Total:
        return _Total(self._sheet, self._series(name, **labels))

    def request_finished(self, succeeded: bool, seconds: float) -> None:
        """Count one request and its total time."""
        (self._success if succeeded else self._fail).add(seconds)

    def batch_finished(self, rows: int, queue_seconds: list[float], seconds: float) -> None:
        """Count one execution."""
        self._sheet.cells[self._last_at] = time.time()
        self._executions.add(rows)
        self._queue.add(sum(queue_seconds), len(queue_seconds))
        self._infer.add(seconds, len(queue_seconds))
        batch = self._batches.get(rows)
        if batch is None:
            batch = self._batches[rows] = self._total(_BATCH, rows=str(rows))
        batch.add(seconds)

    def cache_asked(self, hit: bool, seconds: float) -> None:
        """Count one look into the answer cache."""
        self._cached[hit].add(seconds)

    def document(self, name: str, version: str) -> dict[str, Any]:
        """The entry of ``model_stats``. Input and output are part of the model's time: their own is 0, as often."""
        values = {series: row for series, row in self._sheet.values() if series.kind is Kind.STATISTIC}
        executions = values[self._series("executions")]
        infer = _document(*values[self._series("compute_infer")])
        return {
            "name": name,
            "version": version,
            "last_inference": int(values[self._last][0] * 1000),
            "inference_count": int(executions[1]),
            "execution_count": int(executions[0]),
            "inference_stats": {
                "success": _document(*values[self._series("success")]),
                "fail": _document(*values[self._series("fail")]),
                "queue": _document(*values[self._series("queue")]),
                "compute_input": {**infer, "ns": 0},
                "compute_infer": infer,
                "compute_output": {**infer, "ns": 0},
                "cache_hit": _document(*values[self._series("cache_hit")]),
                "cache_miss": _document(*values[self._series("cache_miss")]),
            },
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": {**total, "ns": 0},
                    "compute_infer": total,
                    "compute_output": {**total, "ns": 0},
                }
                for rows, total in self._batch_documents(values)
            ],
            "memory_usage": [],
            "response_stats": {},
        }

    def _batch_documents(self, values: Mapping[Series, list[float]]) -> list[tuple[int, dict[str, int]]]:
        """By rows, also of sizes that only other workers have seen."""
        start = label_text(self._model) + ',rows="'
        found = [
            (int(series.labels.removeprefix(start).rstrip('"')), _document(*row))
            for series, row in values.items()
            if series.name == _BATCH and series.labels.startswith(start)
        ]
        return sorted(found, key=lambda entry: entry[0])


def _document(count: float, seconds: float) -> dict[str, int]:
    return {"count": int(count), "ns": int(seconds * _NS)}
