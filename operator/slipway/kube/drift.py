"""Foreign edits of our objects: repaired at first, then less and less, so that no two controllers fight for ever."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slipway.kube.kinds import Kind
from slipway.kube.metadata import Key

__all__ = ["Drift", "DriftLedger", "Place"]

Place = tuple[Kind, Key]


@dataclass(frozen=True, slots=True)
class Drift:
    """An object of ours that somebody else has changed."""

    kind: Kind
    key: Key
    manager: str
    """Field manager that changed it; empty when unknown."""
    field: str
    """Path of the first field that differs."""
    repairs: int = 0
    """Repairs within the window, this one included."""
    given_up: bool = False
    """Whether the repair is put off because it keeps being undone."""
    known: bool = False
    """Whether that was so at the last look already."""

    def __str__(self) -> str:
        who = f"field manager {self.manager!r}" if self.manager else "somebody else"
        text = f"{self.kind.name} {self.key.name} was changed by {who} at {self.field}"
        if self.given_up:
            return f"{text} again after {self.repairs} repairs; stop that manager from writing it"
        return text


class DriftLedger:
    """Remembers repairs; in memory only, since a restarted operator may well try again."""

    def __init__(self, *, limit: int = 5, window: float = 600.0) -> None:
        """At most ``limit`` repairs of one object within ``window`` seconds."""
        self._limit = limit
        self._window = window
        self._repairs: dict[Place, deque[float]] = {}
        self._open: dict[Place, Drift] = {}

    def assess(self, kind: Kind, key: Key, manager: str, field: str, now: float) -> Drift:
        """Decide whether a drift is repaired now, and remember it."""
        place = (kind, key)
        times = self._repairs.setdefault(place, deque())
        while times and times[0] <= now - self._window:
            times.popleft()
        given_up = len(times) >= self._limit
        if not given_up:
            times.append(now)
        drift = Drift(kind, key, manager, field, len(times), given_up, known=given_up and place in self._open)
        if given_up:
            self._open[place] = drift
        else:
            self._open.pop(place, None)
        return drift

    def withdraw(self, kind: Kind, key: Key) -> None:
        """Forget the newest repair of an object: it has turned out that nothing had to be repaired."""
        times = self._repairs.get((kind, key))
        if times:
            times.pop()

    def settled(self, kind: Kind, key: Key) -> None:
        """Note that an object is as wanted."""
        self._open.pop((kind, key), None)

    def unrepaired(self, places: Iterable[Place]) -> Drift | None:
        """The first of these objects whose repair is put off."""
        return next((self._open[place] for place in places if place in self._open), None)

    def forget(self, concerns: Callable[[Place], bool]) -> None:
        """Drop what is remembered of the objects that ``concerns`` says yes to."""
        for place in [place for place in self._repairs if concerns(place)]:
            del self._repairs[place]
            self._open.pop(place, None)
