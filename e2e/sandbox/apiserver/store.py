"""Objects in memory, one counter of resource versions for all of them, and the changes that watches are fed from.

Objects are never changed in place once they are stored: every write stores a new dictionary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import orjson

from .failures import expired
from .schema import JsonDict

KEPT_CHANGES = 4096
Key = tuple[str, str]


class ChangeType(Enum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Stored:
    """One object at one resource version, with its encoding made at most once."""

    __slots__ = ("_bytes", "_item", "obj", "version")

    def __init__(self, obj: JsonDict, version: int) -> None:
        self.obj = obj
        self.version = version
        self._bytes: bytes | None = None
        self._item: bytes | None = None

    @property
    def metadata(self) -> JsonDict:
        """The object's metadata."""
        found: JsonDict = self.obj["metadata"]
        return found

    def encoded(self) -> bytes:
        """The object as JSON."""
        if self._bytes is None:
            self._bytes = orjson.dumps(self.obj)
        return self._bytes

    def encoded_item(self) -> bytes:
        """The object as an item of a list of a built-in kind: without kind and apiVersion."""
        if self._item is None:
            self._item = orjson.dumps(
                {key: value for key, value in self.obj.items() if key not in ("kind", "apiVersion")}
            )
        return self._item


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `new` of a deletion is the last state with the version of the deletion."""

    type: ChangeType
    new: Stored
    old: Stored | None

    @property
    def version(self) -> int:
        """The resource version the change made."""
        return self.new.version


Listener = Callable[[Change], None]


@dataclass(slots=True, eq=False)
class Shelf:
    """All objects of one resource, and its latest changes. `floor` is the last version before the oldest of them."""

    floor: int
    objects: dict[Key, Stored] = field(default_factory=dict)
    spaces: dict[str, dict[str, Stored]] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)
    listeners: set[Listener] = field(default_factory=set)

    def put(self, key: Key, stored: Stored) -> None:
        """Place an object in both indexes."""
        self.objects[key] = stored
        self.spaces.setdefault(key[0], {})[key[1]] = stored

    def drop(self, key: Key) -> None:
        """Take an object out of both indexes."""
        del self.objects[key]
        space = self.spaces[key[0]]
        del space[key[1]]
        if not space:
            del self.spaces[key[0]]

    def announce(self, change: Change) -> None:
        """Keep a change for late watches and tell those that listen."""
        if len(self.changes) >= KEPT_CHANGES:
            self.floor = self.changes.popleft().version
        self.changes.append(change)
        for listener in tuple(self.listeners):
            listener(change)

    def since(self, version: int) -> list[Change]:
        """The changes after a version, oldest first. Raises ApiError 410 if some are no longer kept."""
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        out: list[Change] = []
        for change in reversed(self.changes):
            if change.version <= version:
                break
            out.append(change)
        out.reverse()
        return out


class Store:
    """The shelves, and the counter that all writes share."""

    def __init__(self, version: int = 1) -> None:
        self.version = version
        self.shelves: dict[str, Shelf] = {}

    def open_shelf(self, name: str) -> Shelf:
        """The shelf of a resource, made when it is new. Its history starts now."""
        shelf = self.shelves.get(name)
        if shelf is None:
            shelf = self.shelves[name] = Shelf(self.version)
        return shelf

    def get(self, name: str, key: Key) -> Stored | None:
        """One object, or None."""
        return self.shelves[name].objects.get(key)

    def _stamp(self, obj: JsonDict) -> Stored:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        return Stored({**obj, "metadata": metadata}, self.version)

    def put(self, name: str, key: Key, obj: JsonDict) -> Stored:
        """Create or replace an object under a new resource version."""
        shelf = self.shelves[name]
        old = shelf.objects.get(key)
        stored = self._stamp(obj)
        shelf.put(key, stored)
        shelf.announce(Change(ChangeType.MODIFIED if old else ChangeType.ADDED, stored, old))
        return stored

    def delete(self, name: str, key: Key, last: JsonDict | None = None) -> Stored:
        """Remove an object; watches see `last`, or what was stored, under a new resource version."""
        shelf = self.shelves[name]
        old = shelf.objects[key]
        gone = self._stamp(last if last is not None else old.obj)
        shelf.drop(key)
        shelf.announce(Change(ChangeType.DELETED, gone, old))
        return gone

    def select(self, name: str, namespace: str) -> list[Stored]:
        """The objects of a namespace, or of all (empty), ordered by namespace and name."""
        shelf = self.shelves[name]
        if namespace:
            space = shelf.spaces.get(namespace, {})
            return [space[key] for key in sorted(space)]
        return [shelf.objects[key] for key in sorted(shelf.objects)]

    def select_at(self, name: str, namespace: str, version: int) -> list[Stored]:
        """The objects as they were at an earlier version. Raises ApiError 410 if that is too long ago."""
        if version >= self.version:
            return self.select(name, namespace)
        shelf = self.shelves[name]
        objects = dict(shelf.objects)
        for change in reversed(shelf.since(version)):
            key = (change.new.metadata.get("namespace", ""), change.new.metadata["name"])
            if change.old is None:
                objects.pop(key, None)
            else:
                objects[key] = change.old
        return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def snapshot(self) -> JsonDict:
        """Everything needed to start again: the counter and all objects."""
        shelves = {name: [stored.obj for stored in shelf.objects.values()] for name, shelf in self.shelves.items()}
        return {"version": self.version, "shelves": shelves}

    def restore(self, snapshot: JsonDict) -> None:
        """Take over what `snapshot` gave. Watches from before the restart are too old."""
        self.version = snapshot["version"]
        for name, objects in snapshot["shelves"].items():
            shelf = self.open_shelf(name)
            shelf.floor = self.version
            for obj in objects:
                metadata = obj["metadata"]
                stored = Stored(obj, int(metadata["resourceVersion"]))
                shelf.put((metadata.get("namespace", ""), metadata["name"]), stored)

    def everything(self) -> Iterator[tuple[str, Key, Stored]]:
        """All objects with the name of their shelf."""
        for name, shelf in self.shelves.items():
            for key, stored in shelf.objects.items():
                yield name, key, stored


def number(text: Any) -> int:
    """A resource version as a number. Raises ValueError."""
    if not isinstance(text, str) or not text.isdigit():
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)
