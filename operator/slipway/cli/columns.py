"""Plain text tables and times for terminals and logs."""

from collections.abc import Iterable, Sequence

from slipway.api.scalars import format_duration
from slipway.api.timestamps import parse_time

__all__ = ["ago", "indented", "table", "until"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are as wide as they need; the last one is not padded."""
    cells = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        lines.append("  ".join([*padded, row[-1]]).rstrip())
    return lines


def indented(lines: Iterable[str]) -> list[str]:
    """The lines, two spaces in."""
    return [f"  {line}" if line else "" for line in lines]


def ago(text: str, now: float) -> str:
    """A time of a status as the time since then (``4m12s``); what is no time stays as it is."""
    try:
        at = parse_time(text)
    except ValueError:
        return text
    return "-" if at is None else format_duration(max(0.0, now - at))


def until(text: str, now: float) -> str:
    """A time of a status as the time left (``in 4m12s``, or ``4m12s ago``); what is no time stays as it is."""
    try:
        at = parse_time(text)
    except ValueError:
        return text
    if at is None:
        return "-"
    return f"in {format_duration(at - now)}" if at > now else f"{format_duration(now - at)} ago"
