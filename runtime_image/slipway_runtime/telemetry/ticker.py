"""Something that is done every second on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence


class Ticker:
    """Calls ``actions`` every ``period`` seconds until closed, and once more then."""

    def __init__(self, actions: Sequence[Callable[[], None]], period: float = 1.0) -> None:
        self._actions = actions
        self._period = period
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._tick()

    def _tick(self) -> None:
        for action in self._actions:
            action()
        self._timer = self._loop.call_later(self._period, self._tick)

    def close(self) -> None:
        """The last call."""
        if self._timer is not None:
            self._timer.cancel()
            for action in self._actions:
                action()
