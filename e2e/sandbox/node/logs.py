"""Container logs: written in the container runtimes' format, read as `kubectl logs` wants them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

MAX_BYTES = 10 << 20
POLL_SECONDS = 0.1


class LogFile:
    """The log of one run of a container; beyond 10 MiB the older half is let go."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def write(self, line: bytes) -> None:
        """Add one line, with its time, in CRI format (`P` marks a line without end)."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
        tag = b"F" if line.endswith(b"\n") else b"P"
        self._file.write(stamp + b" stdout " + tag + b" " + line.rstrip(b"\n") + b"\n")
        if self._file.tell() > MAX_BYTES:
            self._file.close()
            os.replace(self.path, self.path.with_suffix(".old"))  # noqa: PTH105 - one atomic step
            self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class LogQuery:
    """The parameters of `containerLogs`."""

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


async def read_log(path: Path, query: LogQuery, is_running: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Yield the log's lines; with `follow` go on until the container has ended."""
    sent = 0
    with path.open("rb") as handle:
        lines: deque[bytes] = deque(_lines(handle, query), maxlen=query.tail_lines)
        while True:
            for line in lines:
                room = None if query.limit_bytes is None else query.limit_bytes - sent
                if room is not None and room <= 0:
                    return
                piece = line if room is None else line[:room]
                sent += len(piece)
                yield piece
            if not query.follow:
                return
            running = is_running()
            lines = deque(_lines(handle, query))
            if not lines:
                if not running:
                    return
                await asyncio.sleep(POLL_SECONDS)


def _lines(handle: IO[bytes], query: LogQuery) -> list[bytes]:
    lines: list[bytes] = []
    while True:
        position = handle.tell()
        raw = handle.readline()
        if not raw.endswith(b"\n"):
            handle.seek(position)
            return lines
        stamp, _, tag, text = raw.split(b" ", 3)
        if query.since is not None and datetime.fromisoformat(stamp[:26].decode() + "+00:00") < query.since:
            continue
        if tag == b"P":
            text = text[:-1]
        lines.append(stamp + b" " + text if query.timestamps else text)


def last_text(path: Path, lines: int, limit: int) -> str:
    """The last lines of a log as text, at most `limit` bytes: a fallback for the termination message."""
    with path.open("rb") as handle:
        kept = deque(_lines(handle, LogQuery()), maxlen=lines)
    return b"".join(kept)[-limit:].decode("utf-8", "replace")
