"""How long ago something was, in kubectl's words."""

from __future__ import annotations

from datetime import datetime


def age(text: str | None, now: datetime) -> str:
    """How long ago a time was, the way kubectl says it: 5s, 3m10s, 2h, 4d3h."""
    if not text:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(text)).total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"
