"""The parent of the worker processes: starts them, replaces those that crash, and passes signals on.

It loads no model and opens no connection. Workers are started as new programs, not forked: the numeric libraries and
gRPC have threads and locks that do not survive a fork. The first loads the model alone, so that it is fetched once;
weights that are mapped from a file are in memory once for all workers in any case.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway_runtime import journal
from slipway_runtime.metrics.exposition import Registry
from slipway_runtime.metrics.sheet import SharedSheet, bury
from slipway_runtime.processes.group import WORKER_VARIABLE, Board, variable
from slipway_runtime.processors import THREAD_VARIABLES, usable_processors
from slipway_runtime.refusal import ExitCode, Refusal

_POLL_SECONDS = 0.05
# A drain ends within the grace; what is left after this much more is killed.
_MARGIN_SECONDS = 10.0
_STEADY_SECONDS = 60.0


@dataclass(frozen=True)
class Backoff:
    """Pauses before a crashed worker is started again, in seconds, and after how many crashes the server ends."""

    first: float = 0.5
    longest: float = 30.0
    give_up: int = 10

    def pause(self, crashes: int) -> float:
        """The pause after so many crashes in a row."""
        return float(min(self.longest, self.first * 2.0 ** (crashes - 1)))


@dataclass
class _Worker:
    slot: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    crashes: int = 0
    next_start: float = 0.0


def _this_program() -> list[str]:
    return [sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-m", "slipway_runtime"]


@dataclass
class Supervisor:
    """Runs ``count`` workers of one command line until a signal comes."""

    arguments: Sequence[str]
    count: int
    ports: Mapping[str, int]
    """Flags of ports and their values; 0 is replaced by a free one."""
    host: str
    drain_seconds: float
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.monotonic
    program: Sequence[str] = field(default_factory=_this_program)

    def run(self) -> ExitCode | int:
        """The exit code: 0 after a drain, or that of a worker that could not start. Raises Refusal."""
        self._stopping = False
        self._code = int(ExitCode.OK)
        self._flags: list[str] = []
        self._workers = [_Worker(slot) for slot in range(self.count)]
        self._deadline = float("inf")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        reserved = self._reserve()
        self._folder = Path(tempfile.mkdtemp(prefix="slipway-workers-"))
        try:
            self._board = Board(self._folder, self.count)
            sheet = SharedSheet(self._folder, self.count)
            registry = Registry({}, sheet)
            self._alive = registry.value("gauge", "slipway_workers", "Worker processes that take requests.")
            self._restarts = registry.value(
                "counter", "slipway_worker_restarts_total", "Worker processes that ended unexpectedly."
            )
            self._supervise()
        finally:
            for worker in self._workers:
                if worker.process is not None:
                    worker.process.kill()
            for one in reserved:
                one.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._code

    def _reserve(self) -> list[socket.socket]:
        """Hold the ports, so that nobody else gets them while workers come and go. Raises Refusal."""
        held = []
        for flag, port in self.ports.items():
            try:
                family = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)[0][0]
                with socket.socket(family) as alone:
                    # Without sharing: another server on the port is found out.
                    alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    alone.bind((self.host, port))
                    port = alone.getsockname()[1]  # noqa: PLW2901 - 0 means any
                shared = socket.socket(family)
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                # Connections of a server before this one that have yet to time out are no reason to wait.
                shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                shared.bind((self.host, port))
            except OSError as error:
                text = f"cannot listen on {self.host}:{port}: {error.strerror}"
                raise Refusal("CannotListen", text, ExitCode.INTERNAL) from error
            held.append(shared)
            self._flags += [flag, str(port)]
        return held

    def _on_signal(self, number: int, _: object) -> None:
        self._stop()
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.send_signal(number)

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self._deadline = self.clock() + self.drain_seconds + _MARGIN_SECONDS

    def _supervise(self) -> None:
        while True:
            for worker in self._workers:
                self._look_after(worker)
            running = [worker for worker in self._workers if worker.process is not None]
            if self._stopping and not running:
                return
            ready = [self._board.is_ready(worker.slot) for worker in self._workers]
            self._alive.set(sum(ready))
            if all(ready) and not self._board.complete:
                self._board.complete_now()
                journal.record("workers-ready", workers=self.count)
            if self.clock() > self._deadline:
                for worker in running:
                    assert worker.process is not None
                    worker.process.kill()
            time.sleep(_POLL_SECONDS)

    def _look_after(self, worker: _Worker) -> None:
        now = self.clock()
        if worker.process is None:
            may_start = worker.slot == 0 or self._board.is_ready(0) or self._board.complete
            if not self._stopping and may_start and now >= worker.next_start:
                self._start(worker)
        elif (code := worker.process.poll()) is not None:
            worker.process = None
            was_ready = self._board.is_ready(worker.slot)
            self._board.set_ready(worker.slot, False)
            bury(self._folder, worker.slot)
            self._ended(worker, code, was_ready, now)

    def _ended(self, worker: _Worker, code: int, was_ready: bool, now: float) -> None:
        if self._stopping:
            self._code = self._code or (0 if code == 0 else code if code > 0 else int(ExitCode.INTERNAL))
            return
        if code > 0 and not self._board.complete and not was_ready:
            # It said why: no other worker will do better.
            self._end(code)
            return
        worker.crashes = 1 if now - worker.started > _STEADY_SECONDS else worker.crashes + 1
        pause = self.backoff.pause(worker.crashes)
        worker.next_start = now + pause
        self._restarts.add()
        journal.record("worker-ended", "error", worker=worker.slot, code=code, crashes=worker.crashes, restart_in=pause)
        if worker.crashes >= self.backoff.give_up:
            self._end(code if code > 0 else int(ExitCode.INTERNAL))

    def _end(self, code: int) -> None:
        """The server cannot go on: the other workers drain."""
        self._code = code
        self._stop()
        for worker in self._workers:
            if worker.process is not None:
                worker.process.terminate()

    def _start(self, worker: _Worker) -> None:
        share = str(max(1, usable_processors() // self.count))
        environment = dict.fromkeys(THREAD_VARIABLES, share) | dict(self.environment)
        environment[WORKER_VARIABLE] = variable(worker.slot, self.count, self._folder)
        # A terminal's Ctrl-C reaches the workers through us, once.
        worker.process = subprocess.Popen(  # noqa: S603 - our own program
            [*self.program, *self.arguments, *self._flags], env=environment, start_new_session=True
        )
        worker.started = self.clock()


def supervise(supervisor: Supervisor) -> int:
    """Run it to its end."""
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.getsignal(number))
        return int(supervisor.run())
