"""Values in status, which others may have written: times that are times, finite numbers, texts of bounded length."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator

from slipway.api.scalars import DecimalString
from slipway.api.timestamps import parse_time

__all__ = ["LONGEST_TEXT", "Number", "Timestamp", "cut"]

LONGEST_TEXT = 8192
"""Characters of a text that Slipway writes; all of a status together stays far below etcd's limit for an object."""


def _moment(text: str) -> str:
    try:
        parse_time(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"no time: {text[:40]!r}") from error
    return text


def _finite(number: DecimalString) -> DecimalString:
    if not math.isfinite(number.number):
        raise ValueError(f"no finite number: {number}")
    return number


Timestamp = Annotated[str, AfterValidator(_moment)]
"""RFC 3339 in UTC with microseconds, as :func:`slipway.api.timestamps.format_time` writes it; empty where unset."""
Number = Annotated[DecimalString, AfterValidator(_finite)]
"""A finite number."""


def cut(value: Any) -> Any:
    """A JSON value with every text in it cut to :data:`LONGEST_TEXT`."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[: LONGEST_TEXT - 1]}…"
    if isinstance(value, dict):
        return {name: cut(below) for name, below in value.items()}
    return [cut(below) for below in value] if isinstance(value, list) else value
