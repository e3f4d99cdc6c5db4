"""The cluster behind the API: its resources, its objects, and what follows from changing definitions and namespaces."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from . import bootstrap, catalogue, crds, networks
from .access import Authenticator, Authorizer, User
from .deletions import DEFINITION_FINALIZER, DeleteOptions, Deleter
from .kinds import Registry, Resource
from .schema import JsonDict
from .store import Change, ChangeType, Store, Stored
from .writes import Target, Write, Writer

_DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
_SELF = "kube-apiserver"
# A fresh kube-apiserver has written this much by the time it is ready, so that old, small versions are expired there.
_READY_VERSION = 208
Defer = Callable[[Callable[[], None]], None]


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


class Cluster:
    """Everything but HTTP. `defer` runs a function soon, after the change at hand has been told to all watches."""

    def __init__(
        self,
        tokens: Mapping[str, User],
        defer: Defer,
        allow_loopback: bool = True,
        clock: Callable[[], datetime] = utc_now,
        chance: random.Random | None = None,
    ) -> None:
        self.store = Store()
        self.registry = Registry()
        self.clock = clock
        self.writer = Writer(self.store, clock, chance or random.Random())  # noqa: S311
        self.deleter = Deleter(self.writer)
        self.authenticator = Authenticator(tokens)
        self.authorizer = Authorizer(self.store)
        self._defer = defer
        self._watched: set[str] = set()
        self._emptying: set[str] = set()
        addresses = networks.ServiceAddresses(lambda: [stored.obj for stored in self.store.select("/services", "")])
        for row in catalogue.rows(addresses, allow_loopback, crds.RULES):
            self._add_built_in(catalogue.resource(row))
        self.store.shelves[_DEFINITIONS].listeners.add(self._on_definition)
        self.store.shelves["/namespaces"].listeners.add(self._on_namespace)

    def _add_built_in(self, resource: Resource) -> None:
        self.registry.add(resource)
        self._open(resource)

    def _open(self, resource: Resource) -> None:
        shelf = self.store.open_shelf(resource.storage)
        if resource.namespaced and resource.storage not in self._watched:
            self._watched.add(resource.storage)
            shelf.listeners.add(self._on_content)

    # -- starting -------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Create what a fresh cluster contains and is not there yet."""
        for group, version, plural, namespace, body in bootstrap.objects():
            resource = self.resource(group, version, plural)
            target = Target(resource, namespace, body["metadata"]["name"])
            if self.store.get(resource.storage, target.key) is None:
                self.writer.create(target, body, Write(_SELF))
        self.store.version = max(self.store.version, _READY_VERSION)

    def restore(self, snapshot: JsonDict) -> None:
        """Take over the objects of an earlier run."""
        self.store.restore(snapshot)
        for stored in self.store.select(_DEFINITIONS, ""):
            if self._established(stored.obj):
                self._serve(stored.obj)
        for stored in self.store.select("/namespaces", ""):
            if stored.metadata.get("deletionTimestamp"):
                self._defer(partial(self._empty_namespace, stored.metadata["name"]))

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """A resource that is known to be there."""
        found = self.registry.find(group, version, plural)
        if found is None:
            raise KeyError(f"{group}/{version}/{plural}")
        return found

    # -- definitions ----------------------------------------------------------------------------------------------

    def _on_definition(self, change: Change) -> None:
        name = change.new.metadata["name"]
        if change.type is ChangeType.DELETED:
            spec = change.new.obj["spec"]
            self._defer(lambda: self._forget(spec["group"], spec["names"]["plural"]))
        elif change.old is None or change.old.obj["spec"] != change.new.obj["spec"]:
            self._defer(lambda: self._establish(name))
        elif change.new.metadata.get("deletionTimestamp"):
            self._defer(lambda: self._clean_up(name))

    def _definition(self, name: str) -> Stored | None:
        return self.store.get(_DEFINITIONS, ("", name))

    def _established(self, definition: JsonDict) -> bool:
        conditions = definition.get("status", {}).get("conditions") or ()
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    def _establish(self, name: str) -> None:
        """Accept a definition's names unless another has them, and serve it."""
        stored = self._definition(name)
        if stored is None:
            return
        taken = self._name_conflict(stored.obj)
        now = self.writer.now()
        if taken:
            accepted = _condition("NamesAccepted", "False", taken[0], taken[1], now)
            established = _condition("Established", "False", "NotAccepted", "not all names are accepted", now)
        else:
            accepted = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            established = _condition(
                "Established", "True", "InitialNamesAccepted", "the initial names have been accepted", now
            )
        before = {entry["type"]: entry for entry in stored.obj["status"].get("conditions") or ()}
        conditions = [_kept(entry, before.get(entry["type"])) for entry in (accepted, established)]
        names = {"plural": "", "kind": ""} if taken else stored.obj["spec"]["names"]
        status = {**stored.obj["status"], "conditions": conditions, "acceptedNames": names}
        self._write_status(name, stored, status)
        if not taken:
            self._serve(stored.obj)

    def _write_status(self, name: str, stored: Stored, status: JsonDict) -> None:
        target = Target(self.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", name, "status")
        self.writer.replace(target, stored, {**stored.obj, "status": status}, Write(_SELF))

    def _name_conflict(self, definition: JsonDict) -> tuple[str, str] | None:
        spec = definition["spec"]
        for other in self.store.select(_DEFINITIONS, ""):
            theirs = other.obj["spec"]
            if other.metadata["name"] == definition["metadata"]["name"] or theirs["group"] != spec["group"]:
                continue
            for key, reason in (
                ("kind", "KindConflict"),
                ("listKind", "ListKindConflict"),
                ("singular", "SingularConflict"),
            ):
                if theirs["names"].get(key) == spec["names"].get(key):
                    return reason, f'"{spec["names"][key]}" is already in use'
        return None

    def _serve(self, definition: JsonDict) -> None:
        spec = definition["spec"]
        wanted = crds.resources(definition)
        for old in self.registry.of_group(spec["group"]):
            if old.plural == spec["names"]["plural"] and old.version not in {resource.version for resource in wanted}:
                del self.registry.by_path[(old.group, old.version, old.plural)]
        for resource in wanted:
            self.registry.add(resource)
            self._open(resource)

    def _clean_up(self, name: str) -> None:
        """Delete the objects of a definition that is to go; let it go when there are none."""
        stored = self._definition(name)
        if stored is None or DEFINITION_FINALIZER not in (stored.metadata.get("finalizers") or ()):
            return
        spec = stored.obj["spec"]
        found = [r for r in self.registry.of_group(spec["group"]) if r.plural == spec["names"]["plural"]]
        if found:
            resource = found[0]
            self.deleter.delete_collection(resource, self.store.select(resource.storage, ""), DeleteOptions())
            shelf = self.store.shelves[resource.storage]
            if shelf.objects:
                self._retry_when_empty(resource, name)
                return
        finalizers = [entry for entry in stored.metadata["finalizers"] if entry != DEFINITION_FINALIZER]
        target = Target(self.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", name)
        changed = {**stored.obj, "metadata": {**stored.metadata, "finalizers": finalizers}}
        self.writer.replace(target, stored, changed, Write(_SELF))

    def _retry_when_empty(self, resource: Resource, name: str) -> None:
        shelf = self.store.shelves[resource.storage]

        def listen(change: Change) -> None:
            if change.type is ChangeType.DELETED:
                shelf.listeners.discard(listen)
                self._defer(lambda: self._clean_up(name))

        shelf.listeners.add(listen)

    def _forget(self, group: str, plural: str) -> None:
        if self.registry.of_group(group):
            self.registry.remove(group, plural)

    # -- namespaces -----------------------------------------------------------------------------------------------

    def _on_namespace(self, change: Change) -> None:
        if change.type is not ChangeType.DELETED and change.new.metadata.get("deletionTimestamp"):
            name = change.new.metadata["name"]
            self._defer(lambda: self._empty_namespace(name))

    def _on_content(self, change: Change) -> None:
        if change.type is not ChangeType.DELETED:
            return
        namespace = change.new.metadata.get("namespace", "")
        stored = self.store.get("/namespaces", ("", namespace))
        leaving = stored is not None and stored.metadata.get("deletionTimestamp")
        if leaving and namespace not in self._emptying:
            self._emptying.add(namespace)
            self._defer(lambda: self._empty_namespace(namespace))

    def _empty_namespace(self, name: str) -> None:
        """Delete what is in a namespace that is to go; let it go when nothing is left."""
        self._emptying.discard(name)
        stored = self.store.get("/namespaces", ("", name))
        if stored is None or not stored.metadata.get("deletionTimestamp"):
            return
        left = False
        for resource in list(self.registry.stored()):
            if not resource.namespaced or "delete" not in resource.verbs:
                continue
            found = self.store.select(resource.storage, name)
            fresh = [item for item in found if not item.metadata.get("deletionTimestamp")]
            self.deleter.delete_collection(resource, fresh, DeleteOptions())
            left = left or bool(self.store.select(resource.storage, name))
        finalizers = [entry for entry in stored.obj.get("spec", {}).get("finalizers") or () if entry != "kubernetes"]
        current = self.store.get("/namespaces", ("", name))
        if not left and current is not None:
            self.finalize_namespace(current, finalizers)

    def finalize_namespace(self, stored: Stored, finalizers: list[str]) -> Stored:
        """Set a namespace's own finalizers; it goes with the last of them."""
        if list(stored.obj.get("spec", {}).get("finalizers") or ()) == finalizers and finalizers:
            return stored
        key = ("", stored.metadata["name"])
        changed = {**stored.obj, "spec": {"finalizers": finalizers} if finalizers else {}}
        if not finalizers and stored.metadata.get("deletionTimestamp") and not stored.metadata.get("finalizers"):
            return self.store.delete("/namespaces", key, changed)
        return self.store.put("/namespaces", key, changed)


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> JsonDict:
    return {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}


def _kept(entry: JsonDict, before: JsonDict | None) -> JsonDict:
    """A condition that did not change keeps its time."""
    if before is not None and before["status"] == entry["status"]:
        return {**entry, "lastTransitionTime": before["lastTransitionTime"]}
    return entry
