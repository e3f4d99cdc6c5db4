"""All models of a server, by name and version. Lives on the event-loop thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.protocol.failures import not_found
from slipway_runtime.repository.accounts import Accounts
from slipway_runtime.repository.place import Place, version_order
from slipway_runtime.serving.service import ModelService, Phase


class Repository:
    """Gives the model that serves a name; who changes models is ``ModelControl``."""

    def __init__(
        self, *, allow_empty: bool = False, sheet: Sheet | None = None, complete: Callable[[], bool] | None = None
    ) -> None:
        """``allow_empty``: without any model the server is ready all the same; ``complete``: whether all processes
        that make up the server have been ready."""
        self._complete = complete
        self.accounts = Accounts(sheet)
        self._allow_empty = allow_empty
        self._places: dict[str, list[Place]] = {}
        self._parting: list[ModelService] = []
        self._absent: dict[tuple[str, str], str] = {}
        self._watchers: list[Callable[[], None]] = []

    def find(self, name: str, version: str | None = None) -> ModelService:
        """The model of that name; without a version, the newest one that is ready. Raises RequestFailure (404)."""
        places = self._places.get(name)
        if not places:
            raise not_found(f"there is no model '{name}' here")
        if not version:
            return _preferred(places).service
        for place in places:
            if place.version == version:
                return place.service
        raise not_found(f"model '{name}' has no version '{version}' here")

    @property
    def sole(self) -> ModelService | None:
        """The only model of the server, if it has exactly one."""
        places = [place for found in self._places.values() for place in found]
        return places[0].service if len(places) == 1 else None

    def places(self, name: str | None = None) -> list[Place]:
        """All places, or those of one name, the newest version first."""
        names = self._places if name is None else [name]
        return [place for one in names for place in self._places.get(one, [])]

    def versions(self, name: str) -> list[str]:
        """The versions of a model, oldest first."""
        return [place.version for place in reversed(self._places.get(name, []))]

    def services(self) -> Iterator[ModelService]:
        """What serves now, and what still finishes requests or can be gone back to."""
        yield from (place.service for place in self.places())
        yield from (place.kept.service for place in self.places() if place.kept is not None)
        yield from self._parting

    def add(self, place: Place) -> None:
        """A model that is to be served."""
        self._places.setdefault(place.service.name, []).append(place)
        self._absent.pop((place.service.name, place.version), None)
        self.changed()

    def remove(self, place: Place, reason: str) -> None:
        """A model that is served no more; the index says why."""
        self._absent[place.service.name, place.version] = reason
        places = self._places[place.service.name]
        places.remove(place)
        if not places:
            del self._places[place.service.name]
        self.changed()

    def part_with(self, service: ModelService) -> None:
        """A service that is to be released as soon as its requests are answered."""
        self._parting.append(service)

    def release_idle(self) -> bool:
        """Free the models that were parted with and have nothing unfinished; whether some are left."""
        for service in [one for one in self._parting if not one.unfinished]:
            self._parting.remove(service)
            self.accounts.close(service)
            service.release()
        return bool(self._parting)

    def changed(self) -> None:
        """Sort, and tell those who keep what ``find`` would give."""
        for places in self._places.values():
            places.sort(key=lambda place: version_order(place.version), reverse=True)
        for watcher in self._watchers:
            watcher()

    def follow(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` now and after every change of what serves."""
        self._watchers.append(watcher)
        watcher()

    @property
    def ready(self) -> bool:
        """Whether all models that are required are ready, at least one is there, and the server is complete."""
        if self._complete is not None and not self._complete():
            return False
        required = [place for place in self.places() if place.required]
        if not required:
            return self._allow_empty or any(place.service.ready for place in self.places())
        return all(place.service.ready for place in required)

    def enter(self, phase: Phase) -> None:
        """The server drains or closes, and all its models with it."""
        for service in self.services():
            if service.phase is not Phase.FAILED:
                service.enter(phase)

    @property
    def unfinished(self) -> int:
        """Requests taken and not answered."""
        return sum(service.unfinished for service in self.services())

    def refuse_waiting(self) -> None:
        """Answer everything that still waits with 503."""
        for service in self.services():
            service.refuse_waiting()

    def index(self, *, only_ready: bool = False) -> list[dict[str, str]]:
        """The repository index."""
        entries = [place.index_entry() for place in self.places()]
        entries += [
            {"name": name, "version": version, "state": "UNAVAILABLE", "reason": reason}
            for (name, version), reason in self._absent.items()
        ]
        return [entry for entry in entries if entry["state"] == "READY"] if only_ready else entries

    def metrics_text(self) -> bytes:
        """The Prometheus exposition of all models."""
        return self.accounts.exposition(self.services())


def _preferred(places: list[Place]) -> Place:
    """The newest version that is ready, or else the newest."""
    return next((place for place in places if place.service.ready), places[0])
