"""An event loop whose clock stands still while anything runs and jumps on when everything waits.

Minutes of an operator's life take milliseconds, and happen the same way each time. There must be no real waiting in
it: nothing that runs in a thread, no peer on a network.
"""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

__all__ = ["StandstillError", "VirtualLoop", "run"]

T = TypeVar("T")


class StandstillError(Exception):
    """Everything waits for something that will never happen."""


class _Patience(selectors.BaseSelector):
    """A selector that lets the loop's clock jump instead of waiting."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if not found and timeout is None:
            raise StandstillError("nothing is scheduled any more")
        if not found and timeout:
            self.now += timeout
        return found

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at 0; :meth:`time` is in seconds of the world that runs in it."""

    def __init__(self) -> None:
        self._patience = _Patience()
        super().__init__(self._patience)

    def time(self) -> float:
        """Virtual seconds."""
        return self._patience.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
