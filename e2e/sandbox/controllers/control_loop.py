"""The work queue and the workers every controller runs on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from .client import CONNECTION_ERRORS, ApiError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
FIRST_RETRY_SECONDS = 0.02
LAST_RETRY_SECONDS = 10.0


class WorkQueue(Generic[K]):
    """Keys waiting for work: each at most once, never worked on twice at the same time."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K) -> None:
        """Work on the key as soon as possible."""
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Work on the key after so many seconds; an earlier appointment stands."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(seconds, 0.0)
        timer = self._timers.get(key)
        if timer is not None and not timer.cancelled() and timer.when() <= due:
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._due, key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def retry(self, key: K) -> None:
        """Work on the key again after a growing pause."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.add_after(key, min(FIRST_RETRY_SECONDS * 2**failures, LAST_RETRY_SECONDS))

    def forget(self, key: K) -> None:
        """The key's work went well: its next failure starts with the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key; the caller must call `done` with it."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The work on the key is over; a key that was added meanwhile is queued again."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Cancel all appointments."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class ControlLoop(Generic[K]):
    """Workers that call `reconcile(key)` for the keys of a queue until it succeeds."""

    def __init__(self, name: str, reconcile: Callable[[K], Awaitable[None]], *, workers: int = 4) -> None:
        self.name = name
        self.queue: WorkQueue[K] = WorkQueue()
        self._reconcile = reconcile
        self._workers = workers

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work())
        finally:
            self.queue.close()

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self._reconcile(key)
                self.queue.forget(key)
            except ApiError as error:
                # A conflict is daily business: the cache was behind, the next try sees the newer object.
                level = logging.DEBUG if error.conflict or error.not_found else logging.WARNING
                log.log(level, "%s %s: %s", self.name, key, error)
                self.queue.retry(key)
            except CONNECTION_ERRORS as error:
                log.info("%s %s: %s", self.name, key, error)
                self.queue.retry(key)
            except Exception:
                log.exception("%s %s failed", self.name, key)
                self.queue.retry(key)
            finally:
                self.queue.done(key)
