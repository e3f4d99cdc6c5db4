"""A bounded queue that a thread of its own empties: whoever puts something in never waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

_PERIOD = 0.2


class Outbox(Generic[Item]):
    """Takes items on the event loop and hands them on in lots; what does not fit is counted and dropped."""

    def __init__(
        self, name: str, send: Callable[[Sequence[Item]], int], capacity: int, lot: int = 512, period: float = _PERIOD
    ) -> None:
        """``send`` runs on the thread and gives how many items it could not deliver; ``period`` in seconds."""
        self._send = send
        self._capacity = capacity
        self._lot = lot
        self._period = period
        self._items: deque[Item] = deque()
        self._refused = 0
        self._undelivered = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Items that were not delivered, ever."""
        return self._refused + self._undelivered

    def put(self, item: Item) -> None:
        """Take an item, or drop it when the queue is full. Never blocks; wakes nobody up."""
        if len(self._items) >= self._capacity:
            self._refused += 1
        else:
            self._items.append(item)

    def close(self, seconds: float) -> None:
        """Deliver what is here, within ``seconds``; the rest is counted as dropped."""
        self._closing.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._undelivered += len(self._items)

    def _run(self) -> None:
        while not self._closing.wait(self._period):
            self._empty()
        self._empty()

    def _empty(self) -> None:
        while self._items:
            lot = [self._items.popleft() for _ in range(min(self._lot, len(self._items)))]
            try:
                self._undelivered += self._send(lot)
            except Exception:  # whatever it is, telling about requests must not end with it
                self._undelivered += len(lot)
