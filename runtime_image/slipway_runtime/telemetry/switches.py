"""Settings that clients may read and change while the server runs, in the form of Triton's extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipway_runtime.metrics.sheet import Cells
from slipway_runtime.protocol.failures import forbidden, invalid, unsupported

_RATIO, _TRACING, _INFO, _WARNING, _VERBOSE = range(5)
BOARD_CELLS = 5
_LEVELS = {"log_info": _INFO, "log_warning": _WARNING}
_RATES = 2**31 - 1


class Switches:
    """Shared by all worker processes of a server where ``board`` is: a change is one for all of them."""

    def __init__(
        self, board: Cells | None = None, *, traceable: bool = False, loggable: bool = False, locked: bool = False
    ) -> None:
        """``traceable``: there is a collector to send traces to; ``loggable``: requests can be logged here; ``locked``:
        clients may read only.

        Until ``reset``, a ``board`` that is given keeps what stands on it.
        """
        self._traceable = traceable
        self._loggable = loggable
        self._locked = locked
        if board is not None:
            self._board = board
        else:
            self._board = [0.0] * BOARD_CELLS
            self.reset(0.0, access_log=loggable)

    def reset(self, ratio: float, *, access_log: bool) -> None:
        """The settings with which the server starts."""
        self._board[_RATIO] = ratio
        self._board[_TRACING] = float(self._traceable)
        self._board[_INFO] = self._board[_WARNING] = 1.0
        self._board[_VERBOSE] = float(access_log)

    @property
    def trace_ratio(self) -> float:
        """Share of the requests without a decision of their caller whose trace is recorded."""
        return self._board[_RATIO] if self._board[_TRACING] else 0.0

    @property
    def tracing(self) -> bool:
        """Whether traces are recorded at all."""
        return bool(self._board[_TRACING])

    @property
    def access_log(self) -> bool:
        """Whether requests are logged."""
        return bool(self._board[_VERBOSE])

    def logs(self, level: str) -> bool:
        """Whether lines of the level (``info``, ``warning``, ``error``) are written."""
        cell = _LEVELS.get(f"log_{level}")
        return cell is None or bool(self._board[cell])

    def trace_settings(self) -> dict[str, Any]:
        """The document of the trace extension. ``trace_rate`` N means: one request of N."""
        ratio = self._board[_RATIO]
        return {
            "trace_file": "",
            "trace_level": ["TIMESTAMPS"] if self.tracing and ratio > 0 else ["OFF"],
            "trace_rate": str(min(_RATES, round(1 / ratio)) if ratio > 0 else 0),
            "trace_count": "-1",
            "log_frequency": "0",
            "trace_mode": "opentelemetry" if self._traceable else "triton",
        }

    def log_settings(self) -> dict[str, Any]:
        """The document of the logging extension. ``log_verbose_level`` 1 means: requests are logged."""
        return {
            "log_file": "",
            "log_info": self.logs("info"),
            "log_warning": self.logs("warning"),
            "log_error": True,
            "log_verbose_level": int(self._board[_VERBOSE]),
            "log_format": "default",
        }

    def change_tracing(self, wanted: Mapping[str, Any]) -> None:
        """Change ``trace_rate`` or ``trace_level``. Raises RequestFailure; then nothing has changed."""
        board: dict[int, float] = {}
        for name, value in _news(self.trace_settings(), wanted).items():
            if not self._traceable:
                raise unsupported("this server was started without --trace-endpoint: there is nowhere to send traces")
            if name == "trace_rate":
                rate = _rate(value)
                board[_RATIO] = 1 / rate if rate else 0.0
            elif name == "trace_level" and value in ("OFF", "TIMESTAMPS"):
                board[_TRACING] = float(value == "TIMESTAMPS")
            else:
                raise unsupported(f"setting '{name}' cannot be changed to this value")
        self._apply(board)

    def change_logging(self, wanted: Mapping[str, Any]) -> None:
        """Change levels. Raises RequestFailure; then nothing has changed.

        Errors are always logged: one client must not be able to hide what another does.
        """
        board: dict[int, float] = {}
        for name, value in _news(self.log_settings(), wanted).items():
            if name in _LEVELS and value in (False, True):
                board[_LEVELS[name]] = float(value)
            elif name == "log_verbose_level" and self._loggable and value in (0, 1):
                board[_VERBOSE] = float(value)
            else:
                raise unsupported(f"setting '{name}' cannot be changed to this value")
        self._apply(board)

    def _apply(self, board: Mapping[int, float]) -> None:
        if board and self._locked:
            raise forbidden("this server does not take its settings from requests")
        for cell, value in board.items():
            self._board[cell] = value


def _news(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of the wanted settings differs from the current ones; a cleared setting (null, empty) stays as it is."""
    for name in wanted:
        if name not in current:
            raise invalid(f"there is no setting '{name}'")
    news = {name: _one(value) for name, value in wanted.items()}
    return {name: value for name, value in news.items() if value not in (None, []) and value != _one(current[name])}


def _one(value: Any) -> Any:
    """gRPC has lists of values, and numbers for booleans."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _rate(value: Any) -> int:
    try:
        rate = int(value)
    except (TypeError, ValueError) as error:
        raise invalid("'trace_rate' must be a whole number") from error
    if not 0 <= rate <= _RATES:
        raise invalid("'trace_rate' must be 0 or more")
    return rate
