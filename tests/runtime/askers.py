"""Asking a server for rows, one request at a time or many that wait."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from slipway_runtime.settings import Limits

from tests.runtime.harness import (
    INFER,
    GatedModel,
    ServerThread,
    await_condition,
    fetch,
    json_request,
)

MODEL = "my model"
CACHE = Limits(cache_bytes=1_000_000)
HEADER = "x-slipway-cache"


def row(value: float, count: int = 1) -> list[list[float]]:
    return [[value] * 2] * count


def ask(server: ServerThread, value: float, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
    status, data, answered = fetch(server.address, "POST", INFER, json_request(row(value), **parameters), headers)
    return status, json.loads(data), answered


def requests_of(metrics: dict[str, float], name: str) -> dict[str, float]:
    """The series of a counter by the value of their last label, without those at zero."""
    return {
        series.rpartition("=")[2].strip('"}'): value
        for series, value in metrics.items()
        if series.startswith(f"{name}{{") and value
    }


@contextlib.contextmanager
def permitted(limits: Limits, **more: Any) -> Iterator[tuple[GatedModel, ServerThread]]:
    model = GatedModel()
    model.permit()
    with ServerThread(model, limits, **more) as server:
        yield model, server


class Crowd:
    """Requests that wait for the model, each sent when the one before it waits."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(16)
        self.sent: list[Future[Any]] = []

    def send(self, value: float, headers: dict[str, str] | None = None, **parameters: Any) -> Future[Any]:
        self.sent.append(self._pool.submit(ask, self._server, value, headers, **parameters))
        return self.sent[-1]

    def await_waiting(self, count: int) -> None:
        await_condition(lambda: self._server.on_loop(lambda: self._server.batcher.waiting) == count)
