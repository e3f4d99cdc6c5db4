"""The access log: a JSON object a line for each request."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import orjson

from slipway_runtime.telemetry.outbox import Outbox
from slipway_runtime.telemetry.watch import ROUTINE, Watch

_CAPACITY = 20_000
# With these a line fits into what a pipe takes in one piece, so that the lines of several processes do not mix.
_LONGEST_PATH = 512
_LONGEST_TEXT = 128
_PIECE = 4096
_ERROR = 400
_SERVER_ERROR = 500


class AccessLog:
    """Writes a share of the requests, and every one that failed."""

    def __init__(
        self,
        ratio: float,
        descriptor: int = 1,
        draw: Callable[[], float] = random.random,
        capacity: int = _CAPACITY,
    ) -> None:
        """``ratio`` from 0 to 1; lines go to the file ``descriptor``, by default standard output."""
        self.ratio = ratio
        self._descriptor = descriptor
        self._draw = draw
        self._outbox: Outbox[tuple[Watch, int, int, str, float, float]] = Outbox("access-log", self._write, capacity)

    @property
    def dropped(self) -> int:
        """Lines that were lost because they were not read fast enough."""
        return self._outbox.dropped

    def note(self, watch: Watch, status: int, sent: int, rpc_status: str, wall: float, seconds: float) -> None:
        """Take a finished request: its HTTP status, bytes sent, end in seconds since 1970, and duration."""
        if watch.target.startswith(ROUTINE) and status < _SERVER_ERROR:
            return
        if status >= _ERROR or self.ratio >= 1 or self._draw() < self.ratio:
            self._outbox.put((watch, status, sent, rpc_status, wall, seconds))

    def close(self, seconds: float) -> None:
        """Write what is left, within ``seconds``."""
        self._outbox.close(seconds)

    def _write(self, lot: Sequence[tuple[Watch, int, int, str, float, float]]) -> int:
        piece = b""
        for one in lot:
            text = orjson.dumps(line(*one)) + b"\n"
            if len(piece) + len(text) > _PIECE:
                self._write_whole(piece)
                piece = b""
            piece += text
        self._write_whole(piece)
        return 0

    def _write_whole(self, piece: bytes) -> None:
        while piece:
            piece = piece[os.write(self._descriptor, piece) :]


def line(watch: Watch, status: int, sent: int, rpc_status: str, wall: float, seconds: float) -> dict[str, object]:
    """The fields of a request's line. JSON's escapes keep whatever a client sends inside its string."""
    found: dict[str, object] = {
        "time": datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds"),
        "event": "request",
        "protocol": watch.protocol,
        "method": watch.method,
        "path": watch.target.partition("?")[0][:_LONGEST_PATH],
        "model": watch.model[:_LONGEST_TEXT],
        "version": watch.version[:_LONGEST_TEXT],
        "status": status,
        "received_bytes": watch.received,
        "bytes": sent,
        "duration_ms": _milliseconds(seconds),
        "queue_ms": _milliseconds(watch.queue_seconds),
        "compute_ms": _milliseconds(watch.compute_seconds),
        "request_id": watch.request_id,
        "trace_id": watch.trace.trace_id,
        "remote": watch.remote,
    }
    optional = {"grpc_status": rpc_status, "id": watch.protocol_id, "tenant": watch.tenant}
    return found | {name: value[:_LONGEST_TEXT] for name, value in optional.items() if value}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
