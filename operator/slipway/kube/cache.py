"""What the operator last saw of the cluster, by kind: filled by lists and watches, and by its own writes.

A copy is only ever replaced by a newer one, so an event that was under way while we wrote cannot undo what we know
of our own write. Lists of the API server are older than events that overtook them; both orders end alike.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.kube.client import FIELD_MANAGER, Listing
from slipway.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT, POD, SCALERS, VIRTUAL_SERVICE, Kind
from slipway.kube.likeness import Likeness
from slipway.kube.metadata import Key, is_older, key_of, owner_key, resource_version, uid_of

__all__ = ["Cache", "scaled_deployment", "trimmed"]

Object = Mapping[str, Any]

_SCALER_NAMES = frozenset(kind.name for kind in SCALERS)
TOMBSTONES = 4096
"""Deletions remembered per kind, against lists that were under way."""


def trimmed(kind: Kind, obj: Mapping[str, Any]) -> dict[str, Any]:
    """A copy without what nobody reads: of managed fields which others wrote what when, of a pod's spec node and
    resources."""
    metadata = dict(obj["metadata"])
    managed = metadata.pop("managedFields", None) or ()
    foreign = [
        {name: entry[name] for name in ("manager", "operation", "time", "subresource") if name in entry}
        for entry in managed
        if entry.get("manager") != FIELD_MANAGER and entry.get("subresource") != "status"
    ]
    if foreign:
        metadata["managedFields"] = foreign
    copy = {**obj, "metadata": metadata}
    if kind == POD:
        spec = obj.get("spec") or {}
        copy["spec"] = {
            "nodeName": spec.get("nodeName", ""),
            "containers": [
                {"name": container.get("name"), "resources": container.get("resources") or {}}
                for container in spec.get("containers") or ()
            ],
        }
    return copy


def _full_host(host: str, namespace: str) -> str:
    """A host as a name that means the same everywhere: a short one is that of a Service of its own namespace.

    Of the full name of a Service the cluster's domain is left out, whatever it is.
    """
    if host == "*" or "." not in host:
        return host if host == "*" else f"{host}.{namespace}.svc."
    service, separator, _ = host.partition(".svc.")
    return f"{service}{separator}" if separator else host


def _hosts(obj: Object) -> set[str]:
    namespace = obj["metadata"].get("namespace", "")
    return {_full_host(host, namespace) for host in (obj.get("spec") or {}).get("hosts") or ()}


def scaled_deployment(obj: Object) -> Key | None:
    """The Deployment that a scaler sets the replicas of; None for what is no scaler of a Deployment."""
    if obj.get("kind") not in _SCALER_NAMES:
        return None
    target = (obj.get("spec") or {}).get("scaleTargetRef") or {}
    # KEDA may leave the kind out and means a Deployment.
    if target.get("kind", DEPLOYMENT.name) != DEPLOYMENT.name or not target.get("name"):
        return None
    return Key(str(obj["metadata"].get("namespace", "")), str(target["name"]))


@dataclass(slots=True)
class _Shelf:
    """Objects of one kind."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    owned: dict[Any, set[Key]] = field(default_factory=dict)
    hosts: dict[Any, set[Key]] = field(default_factory=dict)
    targets: dict[Any, set[Key]] = field(default_factory=dict)
    deleted: dict[str, str] = field(default_factory=dict)
    """Resource version at deletion by uid, oldest first."""
    served: bool = True
    newest: str = ""
    """Newest resource version seen, deletions included."""

    def entries(self, obj: Object) -> list[tuple[dict[Any, set[Key]], Any]]:
        """Indexes that an object is entered in, each with the value it is entered under."""
        owner = owner_key(obj)
        entries: list[tuple[dict[Any, set[Key]], Any]] = [(self.owned, owner)] if owner is not None else []
        if obj.get("kind") == VIRTUAL_SERVICE.name:
            entries += [(self.hosts, host) for host in _hosts(obj)]
        target = scaled_deployment(obj)
        if target is not None:
            entries.append((self.targets, target))
        return entries

    def bury(self, obj: Object) -> None:
        """Note a deletion."""
        self.deleted[uid_of(obj)] = resource_version(obj)
        while len(self.deleted) > TOMBSTONES:
            self.deleted.pop(next(iter(self.deleted)))

    def see(self, version: str) -> None:
        """Note a resource version."""
        if not self.newest or is_older(self.newest, version):
            self.newest = version


class Cache:
    """Trimmed objects by kind and key, indexed by the ModelDeployment they belong to, VirtualServices also by host.

    Parts of them are parts of others as well: an object of the cache must never be changed.
    """

    def __init__(self) -> None:
        self._likeness = Likeness()
        self._shelves: dict[Kind, _Shelf] = defaultdict(_Shelf)

    def get(self, kind: Kind, key: Key) -> Object | None:
        """The newest copy known."""
        return self._shelves[kind].objects.get(key)

    def keys(self, kind: Kind) -> list[Key]:
        """Keys of all objects of a kind."""
        return list(self._shelves[kind].objects)

    def owned(self, kind: Kind, owner: Key) -> list[Object]:
        """Objects labelled as belonging to a ModelDeployment, by name."""
        shelf = self._shelves[kind]
        return [shelf.objects[key] for key in sorted(shelf.owned.get(owner, ()))]

    def claiming(self, host: str, namespace: str) -> list[Object]:
        """VirtualServices of the whole cluster that name a host, which may be short for one in ``namespace``."""
        shelf = self._shelves[VIRTUAL_SERVICE]
        return [shelf.objects[key] for key in sorted(shelf.hosts.get(_full_host(host, namespace), ()))]

    def scalers(self, deployment: Key) -> list[Object]:
        """HorizontalPodAutoscalers and ScaledObjects that set the replicas of a Deployment, whoever they belong to."""
        shelves = [self._shelves[kind] for kind in SCALERS]
        return [shelf.objects[key] for shelf in shelves for key in sorted(shelf.targets.get(deployment, ()))]

    def count(self, kind: Kind) -> int:
        """Number of objects of a kind."""
        return len(self._shelves[kind].objects)

    def served(self, kind: Kind) -> bool:
        """Whether the API server knew the kind when it was last listed."""
        return self._shelves[kind].served

    def put(self, kind: Kind, obj: Mapping[str, Any]) -> bool:
        """Remember an object as read, watched or written by us; False for one that is no newer than what is known."""
        shelf, key = self._shelves[kind], key_of(obj)
        version = resource_version(obj)
        shelf.see(version)
        grave = shelf.deleted.get(uid_of(obj))
        if grave is not None and not is_older(grave, version):
            return False
        known = shelf.objects.get(key)
        if known is not None and uid_of(known) == uid_of(obj):
            seen = resource_version(known)
            if seen == version or is_older(version, seen):
                return False
        elif known is not None and is_older(version, resource_version(known)):
            return False
        if known is not None:
            self._forget(shelf, key)
            if uid_of(known) != uid_of(obj):
                shelf.bury(known)
        self._keep(shelf, key, self._likeness.of_next(trimmed(kind, obj), known))
        return True

    def reduced(self, kind: Kind, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """An object as read, without what :meth:`put` would not keep of it; what is known already is not held twice.

        For lists, which are long and are taken over only when they are complete.
        """
        known = self._shelves[kind].objects.get(key_of(obj))
        if known is not None and uid_of(known) == uid_of(obj) and resource_version(known) == resource_version(obj):
            return known
        return trimmed(kind, obj)

    def remove(self, kind: Kind, obj: Mapping[str, Any]) -> bool:
        """Forget an object that was deleted; False when another or a newer one of that name is known."""
        shelf, key = self._shelves[kind], key_of(obj)
        shelf.bury(obj)
        shelf.see(resource_version(obj))
        known = shelf.objects.get(key)
        if known is None or uid_of(known) != uid_of(obj):
            return False
        self._forget(shelf, key)
        return True

    def was_deleted(self, kind: Kind, uid: str) -> bool:
        """Whether an object was seen to be deleted: not long ago, and while we ran."""
        return uid in self._shelves[kind].deleted

    def replace(self, kind: Kind, listing: Listing, covers: Callable[[Key], bool] = lambda key: True) -> set[Key]:
        """Take over a complete list of what ``covers`` says yes to.

        Objects younger than the list are kept: a watch has overtaken it. Returns the ModelDeployments that own what
        differed or vanished.
        """
        shelf = self._shelves[kind]
        shelf.served = True
        changed = [item for item in listing.items if self.put(kind, item)]
        listed = {key_of(item) for item in listing.items}
        for key in [key for key in shelf.objects if key not in listed and covers(key)]:
            if not is_older(listing.resource_version, resource_version(shelf.objects[key])):
                changed.append(self._forget(shelf, key))
        return {owner for obj in changed if (owner := self.owner(kind, obj)) is not None}

    def newest(self, kind: Kind) -> str:
        """The newest resource version seen of a kind; empty before any."""
        return self._shelves[kind].newest

    def start_over(self, kind: Kind, listing: Listing) -> set[Key]:
        """Take over a list of an API server whose past is another: what is known says nothing of what is there now.

        Returns the ModelDeployments that own what was known or is listed.
        """
        known = list(self._shelves[kind].objects.values())
        self._shelves[kind] = _Shelf()
        for item in listing.items:
            self.put(kind, item)
        return {owner for obj in (*known, *listing.items) if (owner := self.owner(kind, obj)) is not None}

    def unserved(self, kind: Kind) -> set[Key]:
        """Note that the API server does not know a kind; returns the ModelDeployments that owned some."""
        gone = self._shelves[kind].objects.values()
        self._shelves[kind] = _Shelf(served=False)
        return {owner for obj in gone if (owner := self.owner(kind, obj)) is not None}

    @staticmethod
    def owner(kind: Kind, obj: Object) -> Key | None:
        """The ModelDeployment that an object is, or belongs to."""
        return key_of(obj) if kind == MODEL_DEPLOYMENT else owner_key(obj)

    @staticmethod
    def _keep(shelf: _Shelf, key: Key, obj: dict[str, Any]) -> None:
        shelf.objects[key] = obj
        for index, value in shelf.entries(obj):
            index.setdefault(value, set()).add(key)

    @staticmethod
    def _forget(shelf: _Shelf, key: Key) -> dict[str, Any]:
        obj = shelf.objects.pop(key)
        for index, value in shelf.entries(obj):
            index[value].discard(key)
            if not index[value]:
                del index[value]
        return obj
