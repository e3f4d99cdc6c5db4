"""The thread that runs a copy of the model, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from slipway_runtime.models.model import Model

Work = Callable[[], Any]
Finish = Callable[[Any, BaseException | None], None]


class Executor:
    """Runs work in order on its own thread and reports back on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, prepare: Callable[[], None] | None = None) -> None:
        """``prepare`` runs first on the new thread: thread counts of numeric libraries are per thread."""
        self._loop = loop
        self._work: SimpleQueue[tuple[Work, Finish] | None] = SimpleQueue()
        self._prepare = prepare
        self._busy_seconds = 0.0
        self._reported = 0.0
        self._started_at: float | None = None
        # A daemon: a model that hangs must not keep a drained process alive.
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self.alive = True
        """Whether the thread still runs; a server whose executor died is not ready."""
        self._thread.start()

    def responsive(self, patience: float) -> bool:
        """Whether the thread lives and has been in the model for less than ``patience`` seconds."""
        begun = self._started_at
        return self.alive and (begun is None or time.monotonic() - begun < patience)

    def submit(self, work: Work, finish: Finish) -> None:
        """Run ``work`` on the thread, then ``finish(result, error)`` on the event loop."""
        self._work.put((work, finish))

    async def call(self, work: Work) -> Any:
        """Run ``work`` on the thread and give its result."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def finish(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(work, finish)
        return await future

    def stop(self) -> None:
        """End the thread after the work given so far."""
        self._work.put(None)

    def started(self) -> None:
        """Begin of an execution of the model, told on the event loop."""
        self._started_at = time.monotonic()

    def finished(self, seconds: float) -> None:
        """End of an execution that took ``seconds``, told on the event loop."""
        self._started_at = None
        self._busy_seconds += seconds

    def busy_seconds(self) -> float:
        """Seconds spent executing so far, a running execution included; never falls."""
        begun = self._started_at
        now = self._busy_seconds + (0.0 if begun is None else time.monotonic() - begun)
        # A running execution is timed from the loop, a finished one on its thread: the latter is a bit less.
        self._reported = max(self._reported, now)
        return self._reported

    def _run(self) -> None:
        try:
            self._work_off()
        finally:
            self.alive = False

    def _work_off(self) -> None:
        unprepared = self._prepared()
        while (item := self._work.get()) is not None:
            work, finish = item
            result: Any = None
            error = unprepared
            try:
                result = work() if unprepared is None else None
            except BaseException as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(finish, result, error)
            # A model that is let go must not live on in here until the next work comes.
            del item, work, finish, result, error

    def _prepared(self) -> BaseException | None:
        """What went wrong in the preparation: then all work fails with it, rather than waiting for ever."""
        try:
            if self._prepare is not None:
                self._prepare()
        except BaseException as error:
            return error
        return None


@dataclass(frozen=True, eq=False)
class Instance:
    """A copy of the model and the thread that runs it."""

    model: Model
    executor: Executor
