"""Times as seconds since the epoch in code and as RFC 3339 strings in status."""

import functools
from datetime import UTC, datetime

__all__ = ["format_time", "parse_time", "whole_second"]


def format_time(seconds: float) -> str:
    """``1750000000.25`` becomes ``2025-06-15T15:06:40.250000Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def whole_second(seconds: float) -> str:
    """The form that conditions and metadata use: ``2025-06-15T15:06:40Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.lru_cache(maxsize=1024)
def parse_time(text: str) -> float | None:
    """Seconds since the epoch, or ``None`` for an empty string; raises ValueError for anything that is no time."""
    return datetime.fromisoformat(text).timestamp() if text else None
