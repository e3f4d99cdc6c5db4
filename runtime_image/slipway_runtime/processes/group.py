"""A worker process' view of the server that it is a part of."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from slipway_runtime.metrics.sheet import Cells, SharedSheet, Sheet, shared_cells
from slipway_runtime.telemetry.switches import BOARD_CELLS

WORKER_VARIABLE = "SLIPWAY_WORKER"
"""``SLOT/COUNT/SUPERVISOR/FOLDER`` of a worker; absent in a server of one process."""
_PR_SET_PDEATHSIG = 1
_COMPLETE = BOARD_CELLS
_FIRST_WORKER = BOARD_CELLS + 1


class Board:
    """Numbers that the supervisor and all workers share: settings, who is ready, and whether all have been."""

    def __init__(self, folder: Path, count: int) -> None:
        self.cells: Cells = shared_cells(folder / "board", _FIRST_WORKER + count)
        self._count = count

    @property
    def complete(self) -> bool:
        """Whether all workers have been ready at the same time. It stays so when one is replaced later."""
        return bool(self.cells[_COMPLETE])

    def complete_now(self) -> None:
        """All workers are ready: so is the server."""
        self.cells[_COMPLETE] = 1.0

    def is_ready(self, slot: int) -> bool:
        """Whether the worker takes requests."""
        return bool(self.cells[_FIRST_WORKER + slot])

    def set_ready(self, slot: int, ready: bool) -> None:
        """Say whether the worker takes requests."""
        self.cells[_FIRST_WORKER + slot] = float(ready)


@dataclass(frozen=True)
class Membership:
    """Which worker this process is."""

    slot: int
    count: int
    board: Board
    sheet: Sheet

    def announce(self) -> None:
        """This worker takes requests."""
        self.board.set_ready(self.slot, True)


def variable(slot: int, count: int, folder: Path) -> str:
    """The value of ``WORKER_VARIABLE`` for a worker."""
    return f"{slot}/{count}/{os.getpid()}/{folder}"


def membership() -> Membership | None:
    """What this process was started as; None for a server of one process."""
    told = os.environ.get(WORKER_VARIABLE)
    if told is None:
        return None
    slot, count, supervisor, folder = told.split("/", 3)
    _end_with(int(supervisor))
    place = Path(folder)
    return Membership(int(slot), int(count), Board(place, int(count)), SharedSheet(place, int(slot)))


def _end_with(supervisor: int) -> None:
    """Ask the system to end this process when its supervisor is killed, so that nobody keeps the ports."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
