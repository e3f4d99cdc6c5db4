"""The garbage collector: what goes when its owner goes (background, foreground, orphan)."""

from __future__ import annotations

import asyncio
import logging

from .client import (
    CONNECTION_ERRORS,
    CUSTOM_RESOURCE_DEFINITIONS,
    JSON_PATCH,
    ApiClient,
    ApiError,
    Obj,
    Resource,
)
from .control_loop import ControlLoop
from .informer import Informer
from .resources import Discovery

log = logging.getLogger(__name__)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
REFRESH_SECONDS = 30.0


class GarbageCollector:
    """Watches the metadata of every kind there is and follows owner references by uid."""

    def __init__(self, client: ApiClient, discovery: Discovery, shared: dict[Resource, Informer]) -> None:
        self._client = client
        self._discovery = discovery
        self._informers = dict(shared)
        self._tasks: dict[Resource, asyncio.Task[None]] = {}
        self._by_uid: dict[str, tuple[Resource, Obj]] = {}
        self._dependents: dict[str, set[str]] = {}
        self._refresh = asyncio.Event()
        self.loop: ControlLoop[str] = ControlLoop("garbage", self.reconcile)
        for resource, informer in self._informers.items():
            self._follow(resource, informer)

    def _follow(self, resource: Resource, informer: Informer) -> None:
        def changed(old: Obj | None, new: Obj | None) -> None:
            self._changed(resource, old, new)

        informer.add_handler(changed)

    def _changed(self, resource: Resource, old: Obj | None, new: Obj | None) -> None:
        obj = new or old or {}
        uid = obj["metadata"]["uid"]
        owners_before = _owner_uids(old)
        owners_now = _owner_uids(new)
        for owner in owners_before - owners_now:
            dependents = self._dependents.get(owner, set())
            dependents.discard(uid)
            if not dependents:
                self._dependents.pop(owner, None)
            # An owner that waits for its dependents has one less to wait for.
            self.loop.queue.add(owner)
        for owner in owners_now:
            self._dependents.setdefault(owner, set()).add(uid)
        if new is None:
            self._by_uid.pop(uid, None)
            for dependent in self._dependents.get(uid, ()):
                self.loop.queue.add(dependent)
        else:
            self._by_uid[uid] = (resource, new)
            if owners_now or new["metadata"].get("deletionTimestamp"):
                self.loop.queue.add(uid)
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            self._refresh.set()

    async def run(self) -> None:
        """Follow what discovery offers, and work, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.loop.run())
                group.create_task(self._keep_resources())
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _keep_resources(self) -> None:
        while True:
            self._refresh.clear()
            try:
                await self._update_resources()
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.info("discovery: %s", error)
                self._refresh.set()
                await asyncio.sleep(0.5)
            try:
                await asyncio.wait_for(self._refresh.wait(), REFRESH_SECONDS)
                # A definition is established a moment after it was written.
                await asyncio.sleep(0.2)
            except TimeoutError:
                continue

    async def _update_resources(self) -> None:
        offered = set(await self._discovery.collectable())
        for resource in offered - set(self._informers):
            informer = Informer(self._client, resource, metadata_only=True)
            self._informers[resource] = informer
            self._follow(resource, informer)
            self._tasks[resource] = asyncio.create_task(informer.run(), name=f"watch {resource.plural}")
        for resource in set(self._tasks) - offered:
            self._tasks.pop(resource).cancel()
            informer = self._informers.pop(resource)
            for obj in informer.all():
                self._changed(resource, obj, None)

    async def reconcile(self, uid: str) -> None:
        """Look at one object, as an owner that is going and as a dependent."""
        entry = self._by_uid.get(uid)
        if entry is None:
            return
        resource, obj = entry
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            finalizers = meta.get("finalizers") or ()
            if ORPHAN in finalizers:
                await self._orphan_dependents(resource, obj)
            elif FOREGROUND in finalizers:
                await self._finish_foreground(resource, obj)
            return
        if meta.get("ownerReferences"):
            await self._check_owners(resource, obj)

    async def _orphan_dependents(self, resource: Resource, owner: Obj) -> None:
        uid = owner["metadata"]["uid"]
        for dependent_uid in list(self._dependents.get(uid, ())):
            entry = self._by_uid.get(dependent_uid)
            if entry is not None:
                kept = [ref for ref in entry[1]["metadata"]["ownerReferences"] if ref["uid"] != uid]
                await self._tolerant(self._write_owners(entry[0], entry[1], kept))
        await self._drop_finalizer(resource, owner, ORPHAN)

    async def _finish_foreground(self, resource: Resource, owner: Obj) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for dependent_uid in list(self._dependents.get(uid, ())):
            entry = self._by_uid.get(dependent_uid)
            if entry is None:
                continue
            references = entry[1]["metadata"].get("ownerReferences") or ()
            blocking = blocking or any(ref["uid"] == uid and ref.get("blockOwnerDeletion") for ref in references)
            self.loop.queue.add(dependent_uid)
        if not blocking:
            await self._drop_finalizer(resource, owner, FOREGROUND)

    async def _check_owners(self, resource: Resource, obj: Obj) -> None:
        solid, waiting, dangling = [], [], []
        for reference in obj["metadata"]["ownerReferences"]:
            owner = await self._owner(reference, obj["metadata"].get("namespace", ""))
            if owner is None:
                dangling.append(reference)
            elif _waits_for_dependents(owner):
                waiting.append(reference)
            else:
                solid.append(reference)
        if solid:
            if waiting or dangling:
                await self._tolerant(self._write_owners(resource, obj, solid))
            return
        has_dependents = bool(self._dependents.get(obj["metadata"]["uid"]))
        foreground = bool(waiting) and has_dependents
        policy = "Foreground" if foreground else _policy_of(obj)
        await self._tolerant(self._client.delete(resource, obj, policy=policy))

    async def _owner(self, reference: Obj, namespace: str) -> Obj | None:
        """The owner by uid, if it lives where the reference says; the server has the last word."""
        entry = self._by_uid.get(reference["uid"])
        if entry is not None:
            owner_namespace = entry[1]["metadata"].get("namespace", "")
            if owner_namespace in ("", namespace):
                return entry[1]
        resource = await self._discovery.find(reference["apiVersion"], reference["kind"])
        if resource is None:
            raise ApiError(503, "", f"no resource for owner {reference['apiVersion']} {reference['kind']}")
        found = await self._client.find(resource, namespace if resource.namespaced else None, reference["name"])
        return found if found is not None and found["metadata"]["uid"] == reference["uid"] else None

    async def _drop_finalizer(self, resource: Resource, obj: Obj, name: str) -> None:
        try:
            current = await self._client.get(resource, obj["metadata"].get("namespace"), obj["metadata"]["name"])
        except ApiError as error:
            if error.not_found:
                return
            raise
        finalizers = current["metadata"].get("finalizers") or []
        if current["metadata"]["uid"] != obj["metadata"]["uid"] or name not in finalizers:
            return
        kept = [entry for entry in finalizers if entry != name]
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]},
            {"op": "test", "path": "/metadata/resourceVersion", "value": current["metadata"]["resourceVersion"]},
            {"op": "replace", "path": "/metadata/finalizers", "value": kept},
        ]
        await self._client.request("PATCH", resource.path_of(obj), patch, content_type=JSON_PATCH)

    async def _write_owners(self, resource: Resource, obj: Obj, references: list[Obj]) -> Obj:
        meta = {"ownerReferences": references or None, "resourceVersion": obj["metadata"]["resourceVersion"]}
        return await self._client.merge(resource, obj, {"metadata": meta})

    async def _tolerant(self, write: object) -> None:
        """Await a write to an object that may have gone meanwhile."""
        try:
            await write  # type: ignore[misc]
        except ApiError as error:
            if not error.not_found:
                raise


def _owner_uids(obj: Obj | None) -> set[str]:
    if obj is None:
        return set()
    return {reference["uid"] for reference in obj["metadata"].get("ownerReferences") or ()}


def _waits_for_dependents(owner: Obj) -> bool:
    meta = owner["metadata"]
    return bool(meta.get("deletionTimestamp")) and FOREGROUND in (meta.get("finalizers") or ())


def _policy_of(obj: Obj) -> str:
    finalizers = obj["metadata"].get("finalizers") or ()
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"
