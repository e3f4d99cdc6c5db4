"""One JSON object per line on standard error: load, ready, refuse, drain. Nothing per request."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

Level = Literal["info", "warning", "error"]


def record(event: str, level: Level = "info", **fields: object) -> None:
    """Write one log line. ``fields`` must be JSON-serialisable or have a useful ``str()``."""
    line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "level": level, "event": event}
    sys.stderr.buffer.write(orjson.dumps(line | fields, default=str) + b"\n")
    sys.stderr.buffer.flush()
