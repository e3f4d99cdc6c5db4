"""Logging: JSON lines in a cluster, text on a terminal, both with the fields of the reconcile under way."""

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, TextIO

from slipway.api.timestamps import format_time

__all__ = ["JsonFormatter", "TextFormatter", "context", "set_up"]

context: ContextVar[Mapping[str, Any] | None] = ContextVar("slipway_log_context", default=None)
"""Fields of the reconcile under way: key, uid, generation, reconcile."""

_QUIET = {
    # kopf logs a line for every handler of every event.
    "kopf.objects": logging.WARNING,
    "kopf": logging.WARNING,
    "aiohttp.access": logging.WARNING,
    "asyncio": logging.WARNING,
}


class _Context(logging.Filter):
    """Copies the fields into the record, in the task that logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.slipway = dict(context.get() or {})
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record."""
        line = {
            "time": format_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "slipway", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, key and message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record."""
        fields: Mapping[str, Any] = getattr(record, "slipway", {})
        key = f"[{fields['key']}] " if "key" in fields else ""
        text = f"{format_time(record.created)[11:23]} {record.levelname:<7} {key}{record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def set_up(style: str = "auto", level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send all logging to ``stream`` (standard error by default); ``style`` is json, text or auto (by the terminal)."""
    stream = stream or sys.stderr
    use_text = style == "text" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if use_text else JsonFormatter())
    handler.addFilter(_Context())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, threshold in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, threshold))
