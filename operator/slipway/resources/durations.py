"""Durations in the one notation that Istio's schema, Go and the runtime all read: whole seconds or milliseconds."""

from slipway.api.scalars import Duration

__all__ = ["plain_duration"]


def plain_duration(duration: Duration) -> str:
    """``1h30m`` becomes ``5400s``, ``1.5s`` becomes ``1500ms``; days, which Go does not know, become seconds."""
    milliseconds = round(duration.seconds * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"
