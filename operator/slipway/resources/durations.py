"""Durations in the notations of others, who do not all know days, fractions or many digits."""

from slipway.api.scalars import Duration

__all__ = ["compound_duration", "plain_duration"]

_UNITS = (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))


def plain_duration(duration: Duration) -> str:
    """Whole seconds or milliseconds, which Istio's schema, Go and the runtime all read.

    ``1h30m`` becomes ``5400s``, ``1.5s`` becomes ``1500ms``; days, which Go does not know, become seconds.
    """
    milliseconds = round(duration.seconds * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def compound_duration(duration: Duration) -> str:
    """Gateway API's notation (GEP-2257), which takes five digits per unit: ``5400.5s`` becomes ``1h30m500ms``."""
    rest = round(duration.seconds * 1000)
    text = ""
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"
