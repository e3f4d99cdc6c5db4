"""The work queue: keys that want a reconcile, with the semantics of client-go's workqueue.

A key that is added while it is worked on runs once more afterwards, never at the same time. A key that waits for a
later moment keeps the earliest one asked for. Failures wait longer each time.

Beyond these, a key may be added patiently: nothing has happened to it, it is only to be looked at. Such keys let all
others pass, as long as they have not waited too long themselves.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Backoff", "Schedule", "WorkQueue"]

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits after failures, in seconds: doubled from ``first`` to ``longest``, each drawn from its upper half."""

    first: float = 0.5
    longest: float = 300.0

    def wait(self, failures: int, draw: float) -> float:
        """Seconds after the n-th failure in a row; ``draw`` is random in [0, 1)."""
        return min(self.first * 2.0 ** min(failures - 1, 30), self.longest) * (0.5 + 0.5 * draw)


PATIENCE = 5.0
"""Seconds for which a patient key lets any number of others pass."""
OTHERS = 3
"""Keys that pass before each patient one that has waited for longer than that."""


class Schedule(Generic[K]):
    """Which keys are due, waiting or worked on; knows no clock but the times it is given."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._dirty: dict[K, float] = {}
        self._patient: dict[K, float] = {}
        self._passed = 0
        self._processing: dict[K, float] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._dirty) + len(self._patient)

    @property
    def waiting(self) -> int:
        """Keys that wait for a later moment."""
        return len(self._due)

    def add(self, key: K, now: float) -> None:
        """Ask for a run as soon as possible."""
        self._due.pop(key, None)
        self._patient.pop(key, None)
        if key in self._dirty:
            return
        self._dirty[key] = now
        if key not in self._processing:
            self._ready.append(key)

    def add_patiently(self, key: K, now: float) -> None:
        """Ask for a run when no other key asks for one; a run under way will do."""
        if key not in self._dirty and key not in self._processing:
            self._patient.setdefault(key, now)

    def add_at(self, key: K, due: float) -> None:
        """Ask for a run at a later moment, unless an earlier one is set."""
        known = self._due.get(key)
        if key in self._dirty or (known is not None and known <= due):
            return
        self._due[key] = due
        self._serial += 1
        heapq.heappush(self._heap, (due, self._serial, key))

    def take(self, now: float) -> tuple[K, float] | None:
        """Begin with the next key; gives it with the seconds it has waited, or None when nothing is due."""
        self._wake(now)
        patient = next(iter(self._patient), None)
        if patient is not None and self._is_turn_of(patient, now):
            self._passed = 0
            self._due.pop(patient, None)
            key, since = patient, self._patient.pop(patient)
        elif self._ready:
            self._passed += 1
            key = self._ready.popleft()
            since = self._dirty.pop(key)
        else:
            return None
        self._processing[key] = now
        return key, now - since

    def _is_turn_of(self, patient: K, now: float) -> bool:
        return not self._ready or (now - self._patient[patient] > PATIENCE and self._passed >= OTHERS)

    def done(self, key: K) -> None:
        """End the work on a key; it becomes ready again when it was added meanwhile."""
        del self._processing[key]
        if key in self._dirty:
            self._ready.append(key)

    def next_due(self) -> float | None:
        """The earliest later moment that a key waits for."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def oldest(self, now: float) -> float:
        """Seconds that the oldest key has been ready without being taken; a patient one is not neglected."""
        return max((now - self._dirty[key] for key in self._ready), default=0.0)

    def longest_run(self, now: float) -> float:
        """Seconds that the longest running work has taken so far."""
        return max((now - started for started in self._processing.values()), default=0.0)

    def _wake(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._heap)
            self.add(key, now)


class WorkQueue(Generic[K]):
    """The asynchronous side of a :class:`Schedule`, for several workers in one event loop."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] | None = None,
        backoff: Backoff | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``clock`` is monotonic, in seconds; the event loop's by default."""
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._backoff = backoff or Backoff()
        self._draw = draw
        self._schedule: Schedule[K] = Schedule()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._schedule)

    @property
    def waiting(self) -> int:
        """Keys that wait for a later moment."""
        return self._schedule.waiting

    @property
    def oldest(self) -> float:
        """Seconds that the oldest key has been ready without being taken."""
        return self._schedule.oldest(self._clock())

    @property
    def longest_run(self) -> float:
        """Seconds that the longest running reconcile has taken so far."""
        return self._schedule.longest_run(self._clock())

    def add(self, key: K) -> None:
        """Ask for a run as soon as possible."""
        self._schedule.add(key, self._clock())
        self._changed.set()

    def add_patiently(self, key: K) -> None:
        """Ask for a run when no other key asks for one."""
        self._schedule.add_patiently(key, self._clock())
        self._changed.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a run in some seconds at the latest."""
        if seconds <= 0:
            self.add(key)
            return
        self._schedule.add_at(key, self._clock() + seconds)
        self._changed.set()

    def retry(self, key: K) -> float:
        """Ask for a run after a failure; returns the seconds until then."""
        self._failures[key] = self._failures.get(key, 0) + 1
        wait = self._backoff.wait(self._failures[key], self._draw())
        self.add_after(key, wait)
        return wait

    def forget(self, key: K) -> None:
        """Note that a key has no failures any more."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures in a row of a key."""
        return self._failures.get(key, 0)

    async def take(self) -> tuple[K, float] | None:
        """Wait for the next key and the seconds it was ready; None once the queue is closed."""
        while not self._closed:
            now = self._clock()
            taken = self._schedule.take(now)
            if taken is not None:
                return taken
            self._changed.clear()
            due = self._schedule.next_due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - now)):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return None

    def done(self, key: K) -> None:
        """End the work on a key."""
        self._schedule.done(key)
        self._changed.set()

    def close(self) -> None:
        """Give out no more keys."""
        self._closed = True
        self._changed.set()
