"""A cache of one resource, kept by list and watch, that also sees our own writes at once."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable

from .client import CONNECTION_ERRORS, ApiClient, ApiError, Obj, Resource

log = logging.getLogger(__name__)

Key = tuple[str, str]
Handler = Callable[[Obj | None, Obj | None], None]
REMEMBERED_DELETIONS = 10_000


def key_of(obj: Obj) -> Key:
    """(namespace, name) of an object; the namespace of a cluster-scoped object is empty."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def version_of(obj: Obj) -> int:
    """The resourceVersion as the number it is."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference with `controller: true`, if there is one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return reference  # type: ignore[no-any-return]
    return None


class Informer:
    """The last known objects of one resource, with handlers called as `handler(old, new)` on each change."""

    def __init__(
        self, client: ApiClient, resource: Resource, *, field_selector: str = "", metadata_only: bool = False
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self._client = client
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._objects: dict[Key, Obj] = {}
        self._by_owner: dict[str, set[Key]] = defaultdict(set)
        self._by_namespace: dict[str, set[Key]] = defaultdict(set)
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._handlers: list[Handler] = []

    def add_handler(self, handler: Handler) -> None:
        """Call `handler(old, new)` for every later change and now for what is known already."""
        self._handlers.append(handler)
        for obj in list(self._objects.values()):
            handler(None, obj)

    def get(self, namespace: str, name: str) -> Obj | None:
        """The object of that name, or None."""
        return self._objects.get((namespace, name))

    def all(self) -> list[Obj]:
        """Every object known."""
        return list(self._objects.values())

    def owned_by(self, uid: str) -> list[Obj]:
        """Objects with an owner reference to that uid."""
        return [self._objects[key] for key in sorted(self._by_owner.get(uid, ()))]

    def in_namespace(self, namespace: str) -> list[Obj]:
        """Objects of a namespace."""
        return [self._objects[key] for key in sorted(self._by_namespace.get(namespace, ()))]

    def observe(self, obj: Obj) -> None:
        """Take in an object the server has just answered a write with, unless something newer is known."""
        if obj["metadata"]["uid"] in self._deleted:
            return
        known = self._objects.get(key_of(obj))
        if known is None or version_of(obj) > version_of(known):
            self._store(obj)

    def _store(self, obj: Obj) -> None:
        key = key_of(obj)
        old = self._objects.get(key)
        if old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]:
            self._drop(old)
            old = None
        if old is not None:
            self._unindex(key, old)
        self._objects[key] = obj
        self._by_namespace[key[0]].add(key)
        for reference in obj["metadata"].get("ownerReferences") or ():
            self._by_owner[reference["uid"]].add(key)
        self._tell(old, obj)

    def _drop(self, obj: Obj) -> None:
        key = key_of(obj)
        self._deleted[obj["metadata"]["uid"]] = None
        while len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        known = self._objects.get(key)
        if known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return
        self._unindex(key, known)
        del self._objects[key]
        self._tell(known, None)

    def _unindex(self, key: Key, obj: Obj) -> None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            _discard(self._by_owner, reference["uid"], key)
        _discard(self._by_namespace, key[0], key)

    def _tell(self, old: Obj | None, new: Obj | None) -> None:
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:
                log.exception("a handler for %s failed", self.resource.plural)

    def _replace(self, items: Iterable[Obj], list_version: int) -> None:
        listed = {}
        for item in items:
            listed[key_of(item)] = item
        for key, known in list(self._objects.items()):
            now_there = listed.get(key)
            gone = now_there is None or now_there["metadata"]["uid"] != known["metadata"]["uid"]
            # What we wrote after the list was taken is not in it and still exists.
            if gone and version_of(known) <= list_version:
                self._drop(known)
        for item in listed.values():
            self.observe(item)

    async def run(self) -> None:
        """Keep the cache until cancelled: list, watch, and list again when the server says Gone."""
        pause = 0.05
        while True:
            try:
                await self._list_and_watch()
                pause = 0.05
            except ApiError as error:
                if error.code == 410:
                    continue
                log.warning("watching %s: %s", self.resource.plural, error)
            except CONNECTION_ERRORS as error:
                log.info("watching %s: %s", self.resource.plural, error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)

    async def _list_and_watch(self) -> None:
        answer = await self._client.list_all(
            self.resource, field_selector=self._field_selector, metadata_only=self._metadata_only
        )
        version = answer["metadata"]["resourceVersion"]
        for item in answer.get("items") or ():
            item.setdefault("kind", self.resource.kind)
            item.setdefault("apiVersion", self.resource.api_version)
        self._replace(answer.get("items") or (), int(version))
        self.synced.set()
        while True:
            async for event in self._client.watch(
                self.resource, version, field_selector=self._field_selector, metadata_only=self._metadata_only
            ):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "DELETED":
                    self._drop(event["object"])
                elif event["type"] != "BOOKMARK":
                    self.observe(event["object"])


def _discard(index: dict[str, set[Key]], value: str, key: Key) -> None:
    keys = index.get(value)
    if keys is not None:
        keys.discard(key)
        if not keys:
            del index[value]
