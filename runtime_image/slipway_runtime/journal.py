"""One JSON object per line on standard error: load, ready, refuse, drain, and what fails. Nothing per request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

import orjson

from slipway_runtime.telemetry.watch import CURRENT, Watch

Level = Literal["info", "warning", "error"]

SUBJECT: ContextVar[Mapping[str, object] | None] = ContextVar("slipway_subject", default=None)
"""Fields by which lines written on a thread name the requests that it works for."""


def _everything(_: str) -> bool:
    return True


_wanted: Callable[[str], bool] = _everything


def want(levels: Callable[[str], bool] | None) -> None:
    """Write only lines of levels for which ``levels`` is true; errors are written whatever it says."""
    global _wanted  # noqa: PLW0603 - one log per process, as there is one standard error
    _wanted = levels or _everything


@contextmanager
def about(watches: Sequence[Watch]) -> Iterator[None]:
    """Lines written inside, on this thread, name these requests."""
    if not watches:
        yield
        return
    token = SUBJECT.set(
        watches[0].subject
        if len(watches) == 1
        else {f"{name}s": [watch.subject[name] for watch in watches] for name in watches[0].subject}
    )
    try:
        yield
    finally:
        SUBJECT.reset(token)


def record(event: str, level: Level = "info", **fields: object) -> None:
    """Write one log line. ``fields`` must be JSON-serialisable or have a useful ``str()``.

    A line written while a watched request is worked on has the request's ids.
    """
    if level != "error" and not _wanted(level):
        return
    watch = CURRENT.get()
    subject = watch.subject if watch is not None else SUBJECT.get() or {}
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event}
    sys.stderr.buffer.write(orjson.dumps(line | fields | dict(subject), default=str) + b"\n")
    sys.stderr.buffer.flush()
