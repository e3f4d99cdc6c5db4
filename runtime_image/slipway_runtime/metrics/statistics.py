"""The statistics extension: totals per model, in nanoseconds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

_NS = 1_000_000_000


@dataclass(slots=True)
class _Total:
    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.seconds += seconds

    def document(self) -> dict[str, int]:
        return {"count": self.count, "ns": int(self.seconds * _NS)}


@dataclass(slots=True)
class ModelStatistics:
    """Counters behind ``/stats``. ``inference_count`` counts rows, ``execution_count`` executions."""

    last_inference: float = 0.0
    inference_count: int = 0
    execution_count: int = 0
    _success: _Total = field(default_factory=_Total)
    _fail: _Total = field(default_factory=_Total)
    _queue: _Total = field(default_factory=_Total)
    _infer: _Total = field(default_factory=_Total)
    _batches: dict[int, _Total] = field(default_factory=dict)

    def request_finished(self, succeeded: bool, seconds: float) -> None:
        """Count one request and its total time."""
        (self._success if succeeded else self._fail).add(seconds)

    def batch_finished(self, rows: int, queue_seconds: list[float], seconds: float) -> None:
        """Count one execution."""
        self.last_inference = time.time()
        self.inference_count += rows
        self.execution_count += 1
        self._queue.add(sum(queue_seconds), len(queue_seconds))
        self._infer.add(seconds, len(queue_seconds))
        self._batches.setdefault(rows, _Total()).add(seconds)

    def document(self, name: str, version: str) -> dict[str, Any]:
        """The entry of ``model_stats``. Input, output and cache times are not measured apart: they are 0."""
        zero = _Total().document()
        return {
            "name": name,
            "version": version,
            "last_inference": int(self.last_inference * 1000),
            "inference_count": self.inference_count,
            "execution_count": self.execution_count,
            "inference_stats": {
                "success": self._success.document(),
                "fail": self._fail.document(),
                "queue": self._queue.document(),
                "compute_input": zero,
                "compute_infer": self._infer.document(),
                "compute_output": zero,
                "cache_hit": zero,
                "cache_miss": zero,
            },
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": zero,
                    "compute_infer": total.document(),
                    "compute_output": zero,
                }
                for rows, total in sorted(self._batches.items())
            ],
            "memory_usage": [],
            "response_stats": {},
        }
