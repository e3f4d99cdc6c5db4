"""Times as the Kubernetes API writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """The present moment in UTC."""
    return datetime.now(UTC)


def to_text(moment: datetime) -> str:
    """RFC 3339 with whole seconds, the API's `Time`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_micro_text(moment: datetime) -> str:
    """RFC 3339 with microseconds, the API's `MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_text(text: str) -> datetime:
    """Read either of the two."""
    return datetime.fromisoformat(text)


def seconds_since(text: str | None, moment: datetime) -> float:
    """Seconds from a time of the API to `moment`; infinite when there is none."""
    if not text:
        return float("inf")
    return (moment - from_text(text)).total_seconds()
