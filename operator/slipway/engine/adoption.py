"""Objects that an earlier ModelDeployment of the same name has left: they are taken over, not fought over.

Children are left when their owner is deleted with ``--cascade=orphan``, when a tool restores them from a backup (Velero
takes every owner reference away), or when somebody takes the reference away. As a Deployment adopts ReplicaSets, a
ModelDeployment adopts what bears its labels and a name that only it gives, and has no controller. It serves on
meanwhile: nothing but the owner reference is written.

A child may also name an owner that is no more. Where that one was seen to be deleted, the garbage collector is about to
take its children away, as whoever deleted it wanted; else they come from a backup, and are adopted before it comes.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.drift import Place
from slipway.kube.failures import ConflictError, ForbiddenError, InvalidError, NotFoundError
from slipway.kube.kinds import CHILDREN, MODEL_DEPLOYMENT, Kind
from slipway.kube.metadata import (
    Key,
    controller,
    is_predecessors,
    key_of,
    label,
    owner_key,
    resource_version,
    uid_of,
)
from slipway.resources import Identity
from slipway.resources.identity import REVISION_LABEL, metadata

__all__ = ["Adoption", "is_left_behind"]

log = logging.getLogger(__name__)

Object = Mapping[str, Any]

ATTEMPTS = 3
"""How often an object is looked at that changes while it is adopted, as a Deployment does whose pods start."""


def is_left_behind(obj: Object, key: Key, uid: str) -> bool:
    """Whether an object is one that a ModelDeployment of this name and another uid, or with no reference, has left."""
    if owner_key(obj) != key or obj["metadata"].get("deletionTimestamp") or not _is_named_by_us(obj, key):
        return False
    return controller(obj) is None or is_predecessors(obj, key.name, uid)


def _is_named_by_us(obj: Object, key: Key) -> bool:
    """Whether the name is one that we give: a copy that somebody made under another is theirs, and not to be pruned."""
    name, revision = key_of(obj).name, label(obj, REVISION_LABEL)
    return name == revision if revision else name == key.name or name.startswith(f"{key.name}-")


class Adoption:
    """Gives owner references to what was left behind."""

    def __init__(self, client: Client, cache: Cache) -> None:
        self._client = client
        self._cache = cache

    async def adopt(self, raw: Object) -> Sequence[Place]:
        """Adopt what is left for a ModelDeployment as read; gives what was adopted, in the order of the kinds.

        Raises :class:`~slipway.kube.failures.ConflictError` when the ModelDeployment is not what it was any more, or an
        object keeps changing: then everything has to be read again. What the API server does not let us adopt stays as
        it is, and is a conflict where it stands in the way.
        """
        key, uid = key_of(raw), uid_of(raw)
        found = ((kind, obj) for kind in CHILDREN for obj in self._cache.owned(kind, key))
        left = [(kind, obj) for kind, obj in found if self._is_free(obj, key, uid)]
        if not left:
            return ()
        await self._confirm(key, uid)
        return [(kind, key_of(obj)) for kind, obj in left if await self._take(kind, obj, key, uid)]

    def _is_free(self, obj: Object, key: Key, uid: str) -> bool:
        if not is_left_behind(obj, key, uid):
            return False
        owner = controller(obj)
        return owner is None or not self._cache.was_deleted(MODEL_DEPLOYMENT, str(owner.get("uid", "")))

    async def _confirm(self, key: Key, uid: str) -> None:
        """Make sure that the ModelDeployment is there to stay, as every controller does before it adopts.

        The cache may not know yet that it is being deleted, its children orphaned: these would get back an owner that
        is gone in a moment.
        """
        try:
            found = await self._client.get(MODEL_DEPLOYMENT, *key)
        except NotFoundError as error:
            raise ConflictError(f"{key} is gone", status=409, reason="Conflict") from error
        if uid_of(found) != uid or found["metadata"].get("deletionTimestamp"):
            self._cache.put(MODEL_DEPLOYMENT, found)
            raise ConflictError(f"{key} is being deleted, or another one", status=409, reason="Conflict")

    async def _take(self, kind: Kind, obj: Object, key: Key, uid: str) -> bool:
        """Adopt one object; False when it is gone, somebody else's meanwhile, or not to be had."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer = await self._client.patch(kind, *key_of(obj), _adopted(obj, key, uid))
            except NotFoundError:
                self._cache.remove(kind, obj)
                return False
            except (ForbiddenError, InvalidError) as error:
                log.error("%s %s cannot be adopted: %s", kind.name, key_of(obj), error)
                return False
            except ConflictError:
                if attempt == ATTEMPTS:
                    raise
            else:
                self._cache.put(kind, answer)
                return True
            try:
                obj = await self._client.get(kind, *key_of(obj))
            except NotFoundError:
                self._cache.remove(kind, obj)
                return False
            self._cache.put(kind, obj)
            if not self._is_free(obj, key, uid):
                return False
        return False


def _adopted(obj: Object, key: Key, uid: str) -> dict[str, Any]:
    """The patch that makes an object ours, on condition that it is as we saw it; other owners than controllers stay."""
    references = obj["metadata"].get("ownerReferences") or ()
    others = [dict(reference) for reference in references if not reference.get("controller")]
    ours = metadata(Identity(key.name, key.namespace, uid), key.name)["ownerReferences"]
    return {
        "metadata": {
            "uid": uid_of(obj),
            "resourceVersion": resource_version(obj),
            "ownerReferences": [*others, *ours],
        }
    }
