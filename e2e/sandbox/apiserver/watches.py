"""Watches: the changes of a resource as a stream of JSON lines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import orjson

from . import tables
from .failures import ApiError
from .kinds import Resource
from .lists import Selection, View, too_new
from .schema import JsonDict
from .store import Change, ChangeType, Shelf, Store, Stored

BOOKMARK_SECONDS = 60.0
_MOST_PENDING = 20_000
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


class Watch:
    """One client's watch. `lines()` yields what to send and ends at the deadline or when the client is too slow."""

    def __init__(
        self, store: Store, resource: Resource, selection: Selection, view: View, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._resource = resource
        self._selection = selection
        self._view = view
        self._clock = clock
        self._pending: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._overrun = False
        self._columns_sent = False

    @property
    def _shelf(self) -> Shelf:
        return self._store.shelves[self._resource.storage]

    async def lines(self, query: dict[str, str], version: int, seconds: float) -> AsyncIterator[bytes]:
        """The stream: what was asked for first, then each change. Nothing happens between the two."""
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            self._start(query, version, bookmarks)
        except ApiError as problem:
            yield _line("ERROR", orjson.dumps(problem.status()))
            return
        self._shelf.listeners.add(self._on_change)
        try:
            next_bookmark = loop.time() + BOOKMARK_SECONDS
            while True:
                while self._pending:
                    yield self._take()
                now = loop.time()
                if now >= deadline or self._overrun:
                    return
                if bookmarks and now >= next_bookmark:
                    next_bookmark = now + BOOKMARK_SECONDS
                    yield self._bookmark(None)
                self._wake.clear()
                try:
                    async with asyncio.timeout(min(deadline, next_bookmark) - now):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self._shelf.listeners.discard(self._on_change)

    def close(self) -> None:
        """End the stream, for when its resource is no longer served."""
        self._overrun = True
        self._wake.set()

    def _take(self) -> bytes:
        """All that is pending, in one piece."""
        joined = b"".join(self._pending)
        self._pending.clear()
        return joined

    def _start(self, query: dict[str, str], version: int, bookmarks: bool) -> None:
        initial = query.get("sendInitialEvents") in ("true", "1")
        if version > self._store.version:
            raise too_new(version, self._store.version)
        if initial or (version == 0 and "sendInitialEvents" not in query):
            for stored in self._store.select(self._resource.storage, self._selection.namespace):
                if self._selection.takes(self._resource, stored):
                    self._pending.append(self._event(ChangeType.ADDED, stored))
            if initial and bookmarks:
                self._pending.append(self._bookmark(_INITIAL_END))
        elif version:
            for change in self._shelf.since(version):
                self._on_change(change)

    def _on_change(self, change: Change) -> None:
        line = self._line_for(change)
        if line is not None:
            self._pending.append(line)
            self._overrun = self._overrun or len(self._pending) > _MOST_PENDING
            self._wake.set()

    def _line_for(self, change: Change) -> bytes | None:
        """What this watch sees of a change: leaving its selection is a deletion, entering it an addition."""
        takes, resource = self._selection.takes, self._resource
        before = change.old is not None and takes(resource, change.old)
        if change.type is ChangeType.DELETED:
            return self._event(ChangeType.DELETED, change.new) if before else None
        after = takes(resource, change.new)
        if after:
            return self._event(ChangeType.MODIFIED if before else ChangeType.ADDED, change.new)
        if before and change.old is not None:
            metadata = {**change.old.metadata, "resourceVersion": str(change.version)}
            return self._event(ChangeType.DELETED, Stored({**change.old.obj, "metadata": metadata}, change.version))
        return None

    def _event(self, kind: ChangeType, stored: Stored) -> bytes:
        resource = self._resource
        if self._view.form == "Table":
            metadata = {"resourceVersion": str(stored.version)}
            first, self._columns_sent = not self._columns_sent, True
            body = tables.table(resource, [stored], metadata, self._view.include, self._clock(), with_columns=first)
            return _line(kind.value, orjson.dumps(body))
        if self._view.form:
            return _line(kind.value, orjson.dumps(tables.partial(resource.outward(stored.obj))))
        if resource.from_storage is not None or stored.obj["apiVersion"] != resource.api_version:
            return _line(kind.value, orjson.dumps(resource.outward(stored.obj)))
        return _line(kind.value, stored.encoded())

    def _bookmark(self, annotations: dict[str, str] | None) -> bytes:
        metadata: JsonDict = {"resourceVersion": str(self._store.version)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {**self._resource.empty(), "metadata": metadata}
        if self._view.form == "Table":
            row = {"cells": [], "object": tables.partial(obj)}
            obj = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "columnDefinitions": [],
                "rows": [row],
            }
        elif self._view.form:
            obj = tables.partial(obj)
        return _line("BOOKMARK", orjson.dumps(obj))


def _line(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"
