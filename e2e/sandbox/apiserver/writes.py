"""Creating and changing objects: decoding, ownership of fields, validation, conflicts, generation."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from . import fieldmanagers, names
from .endpoints import counts, keep_system_fields, scoped, writable
from .failures import (
    INVALID,
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid,
    modified,
    not_found,
)
from .fieldmanagers import APPLY, UPDATE, Manager
from .kinds import Resource, dig
from .schema import JsonDict
from .store import Key, Store, Stored

_GENERATE_ATTEMPTS = 8


@dataclass(slots=True)
class Write:
    """How a client wants a write done, and the warnings it gets back."""

    manager: str
    dry_run: bool = False
    validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request names: a resource, and an object or part of one."""

    resource: Resource
    namespace: str
    name: str = ""
    part: str = ""

    @property
    def key(self) -> Key:
        """The object's place on its shelf."""
        return (self.namespace if self.resource.namespaced else "", self.name)

    def missing(self) -> ApiError:
        """404 for this object."""
        return not_found(self.resource.group, self.resource.plural, self.name)


class Writer:
    """All writes go through here. `clock` gives the time in UTC, `chance` generated names."""

    def __init__(self, store: Store, clock: Callable[[], datetime], chance: random.Random) -> None:
        self.store = store
        self.clock = clock
        self.chance = chance

    def now(self) -> str:
        """The time as objects carry it."""
        return self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")

    def stored(self, target: Target) -> Stored:
        """The object a request names. Raises ApiError 404."""
        found = self.store.get(target.resource.storage, target.key)
        if found is None:
            raise target.missing()
        return found

    def decode(self, resource: Resource, body: Any, write: Write, patched: bool = False) -> JsonDict:
        """A body as an object of the resource. Raises ApiError 400 for other kinds and, if strict, unknown fields."""
        check_type(resource, body)
        try:
            obj, unknown = resource.decode(body)
        except ApiError as problem:
            if not patched or resource.custom:
                raise
            # Not the object is to blame, but the patch.
            raise invalid("", "", "", [Cause(INVALID, "patch", f"Invalid value: {problem.message}")]) from problem
        if unknown and write.validation != "Ignore":
            complaints = [f'unknown field "{path}"' for path in sorted(set(unknown))]
            if write.validation == "Strict":
                raise _strict(resource, ", ".join(complaints), patched)
            write.warnings += complaints
        obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
        obj.setdefault("metadata", {})
        return obj

    # -- create ---------------------------------------------------------------------------------------------------

    def create(self, target: Target, body: Any, write: Write) -> Stored:
        """Create an object. Raises ApiError for a body that does not do and for a name that is taken."""
        resource = target.resource
        obj = self.decode(resource, body, write)
        self._place(target, obj["metadata"])
        self.admit_namespace(target)
        if obj["metadata"].get("resourceVersion"):
            raise internal("resourceVersion should not be set on objects to be created")
        _drop_status(resource, obj)
        manager = Manager(write.manager, UPDATE, resource.api_version)
        obj = fieldmanagers.record_update(resource.schema, resource.empty(), obj, manager, self.now())
        return self._add(resource, obj, write)

    def _place(self, target: Target, metadata: JsonDict) -> None:
        if not target.resource.namespaced:
            metadata.pop("namespace", None)
        elif metadata.setdefault("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if target.name and metadata.setdefault("name", target.name) != target.name:
            raise _wrong_name(metadata["name"], target.name)

    def admit_namespace(self, target: Target) -> None:
        """Refuse new objects in a namespace that is not there (404) or on its way out (403)."""
        if not target.resource.namespaced:
            return
        namespace = self.store.get("/namespaces", ("", target.namespace))
        if namespace is None:
            raise not_found("", "namespaces", target.namespace)
        if namespace.metadata.get("deletionTimestamp"):
            why = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            refused = forbidden(target.resource.group, target.resource.plural, target.name, why)
            cause = Cause(
                "NamespaceTerminating", "metadata.namespace", f"namespace {target.namespace} is being terminated"
            )
            (refused.details or {})["causes"] = [cause.as_dict()]
            raise refused

    def _add(self, resource: Resource, obj: JsonDict, write: Write) -> Stored:
        metadata = obj["metadata"]
        for key in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            metadata.pop(key, None)
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = self.now()
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(resource, metadata)
        if resource.custom:
            metadata["generation"] = 1
        if resource.rules.prepare is not None:
            resource.rules.prepare(obj)
        self._validate(resource, obj, None, "")
        place = (metadata.get("namespace", ""), metadata["name"])
        if self.store.get(resource.storage, place) is not None:
            raise already_exists(resource.group, resource.plural, metadata["name"])
        obj = resource.inward(obj)
        return Stored(obj, 0) if write.dry_run else self.store.put(resource.storage, place, obj)

    def _free_name(self, resource: Resource, metadata: JsonDict) -> str:
        name = ""
        for _ in range(_GENERATE_ATTEMPTS):
            name = names.generated(metadata["generateName"], self.chance)
            if self.store.get(resource.storage, (metadata.get("namespace", ""), name)) is None:
                break
        return name

    def _validate(self, resource: Resource, new: JsonDict, old: JsonDict | None, part: str) -> None:
        causes = names.check_metadata(new["metadata"], resource.rules.name_pattern)
        if old is not None:
            causes = names.check_metadata_update(new["metadata"], old["metadata"]) + causes
        if part != "status":
            if resource.rules.check is not None:
                causes += resource.rules.check(new)
            if old is not None and resource.rules.check_update is not None:
                causes += resource.rules.check_update(new, old)
        if resource.validator is not None:
            causes += resource.validator(new, old, causes)
        if causes:
            raise invalid(resource.group, resource.kind, new["metadata"].get("name", ""), causes)

    # -- update ---------------------------------------------------------------------------------------------------

    def update(self, target: Target, body: Any, write: Write) -> tuple[Stored, bool]:
        """Replace an object or its status; also whether it was created, which a few kinds allow."""
        resource = target.resource
        obj = self.decode(resource, body, write)
        if not obj["metadata"].get("name"):
            raise bad_request("name must be provided")
        self._place(target, obj["metadata"])
        stored = self.store.get(resource.storage, target.key)
        if stored is None:
            if resource.rules.create_on_update and not target.part:
                return self.create(target, body, write), True
            raise target.missing()
        sent = obj["metadata"].get("uid")
        if sent and sent != stored.metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {sent}, UID in object meta: {stored.metadata['uid']}"
            raise conflict(resource.group, resource.plural, target.name, why)
        self._check_version(target, obj["metadata"], stored, patched=False)
        return self.replace(target, stored, resource.inward(obj), write), False

    def _check_version(self, target: Target, metadata: JsonDict, stored: Stored, patched: bool) -> None:
        resource, sent = target.resource, metadata.get("resourceVersion", "")
        if sent in ("", "0"):
            if not patched and (resource.custom or not resource.rules.unconditional):
                words = "Invalid value: 0: must be specified for an update"
                raise invalid(
                    resource.group, resource.plural, target.name, [Cause(INVALID, "metadata.resourceVersion", words)]
                )
        elif sent != str(stored.version):
            raise modified(resource.group, resource.plural, target.name)

    def replace(
        self,
        target: Target,
        stored: Stored,
        new: JsonDict,
        write: Write,
        owned: bool = False,
        recorded_part: str | None = None,
    ) -> Stored:
        """Put `new` in the place of what is stored. `owned`: its managedFields are already right.

        `recorded_part` is the subresource to record in managedFields if it is not the target's part.
        """
        resource, old, part = target.resource, stored.obj, target.part
        new = scoped(resource, part, new, old)
        keep_system_fields(new["metadata"], old["metadata"])
        if not owned:
            manager = Manager(
                write.manager, UPDATE, resource.api_version, part if recorded_part is None else recorded_part
            )
            new = fieldmanagers.record_update(resource.schema, old, new, manager, self.now())
        if part == "" and resource.rules.prepare_update is not None:
            resource.rules.prepare_update(new, old)
        if counts(resource, new, old, part):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        self._validate(resource, new, old, part)
        new["metadata"]["resourceVersion"] = str(stored.version)
        if new == old:
            return stored
        return self._commit(target, stored, new, write)

    def _commit(self, target: Target, stored: Stored, new: JsonDict, write: Write) -> Stored:
        if write.dry_run:
            return Stored(new, stored.version)
        metadata = new["metadata"]
        leaving = metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
        if leaving and not metadata.get("finalizers") and not dig(new, "spec", "finalizers"):
            self.store.delete(target.resource.storage, target.key, new)
            return Stored(new, stored.version)
        return self.store.put(target.resource.storage, target.key, new)

    def change_part(
        self, target: Target, stored: Stored, changed: JsonDict, write: Write, part: str, path: tuple[str, ...]
    ) -> Stored:
        """Change the field at `path` on behalf of a subresource; managedFields name it if the field had an owner."""
        obj = self.decode(target.resource, changed, write)
        self._check_version(target, obj["metadata"], stored, patched=True)
        untracked = not fieldmanagers.owns(stored.obj, path)
        return self.replace(target, stored, target.resource.inward(obj), write, owned=untracked, recorded_part=part)

    def assign(self, target: Target, pod: Stored, node: str, write: Write) -> Stored:
        """Set a pod's node and its PodScheduled condition. Raises ApiError 409 if it already has a node."""
        if dig(pod.obj, "spec", "nodeName"):
            why = f'pod {target.name} is already assigned to node "{pod.obj["spec"]["nodeName"]}"'
            raise conflict("", "pods/binding", target.name, why)
        condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": self.now()}
        others = [entry for entry in pod.obj["status"].get("conditions") or () if entry["type"] != "PodScheduled"]
        status = {**pod.obj["status"], "conditions": [*others, condition]}
        new = {**pod.obj, "spec": {**pod.obj["spec"], "nodeName": node}, "status": status}
        return Stored(new, pod.version) if write.dry_run else self.store.put(target.resource.storage, target.key, new)

    def patch(self, target: Target, change: Callable[[JsonDict], JsonDict], write: Write) -> Stored:
        """Change an object by a function of its present state."""
        stored, resource = self.stored(target), target.resource
        before = resource.outward(stored.obj)
        body = change(before)
        if body is before:
            return stored
        obj = self.decode(resource, body, write, patched=True)
        if obj["metadata"].get("name") != target.name:
            raise _wrong_name(obj["metadata"].get("name", ""), target.name)
        self._place(target, obj["metadata"])
        self._check_version(target, obj["metadata"], stored, patched=True)
        return self.replace(target, stored, resource.inward(obj), write)

    # -- server-side apply ----------------------------------------------------------------------------------------

    def apply(self, target: Target, body: Any, write: Write) -> tuple[Stored, bool]:
        """Server-side apply; also whether the object was created."""
        resource = target.resource
        check_type(resource, body, strict=True)
        metadata = body.get("metadata") or {}
        if resource.namespaced and metadata.get("namespace", target.namespace) != target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        stored = self.store.get(resource.storage, target.key)
        if stored is None and target.part:
            raise target.missing()
        live = resource.outward(stored.obj) if stored is not None else resource.empty()
        self._check_apply(target, metadata, stored)
        manager = Manager(write.manager, APPLY, resource.api_version, target.part)
        label = f"{target.namespace}/{target.name}; {resource.api_version}, Kind={resource.kind}"
        merged = fieldmanagers.apply(
            resource.schema,
            resource.empty(),
            live,
            body,
            manager,
            self.now(),
            write.force,
            label,
            lambda obj: writable(resource, target.part, obj),
        )
        # Conflicts of managers come before this.
        if metadata.get("name", target.name) != target.name:
            raise _wrong_name(metadata["name"], target.name)
        obj = self._decode_applied(target, merged, write, label)
        if stored is None:
            self._place(target, obj["metadata"])
            self.admit_namespace(target)
            _drop_status(resource, obj)
            return self._add(resource, obj, write), True
        return self.replace(target, stored, resource.inward(obj), write, owned=True), False

    def _decode_applied(self, target: Target, merged: JsonDict, write: Write, label: str) -> JsonDict:
        """What was applied as an object. Raises ApiError: 500, like the real server, for what no built-in kind is."""
        try:
            return self.decode(target.resource, merged, write)
        except ApiError as problem:
            if target.resource.custom:
                raise
            raise internal(f"failed to convert new object ({label}) to proper version: {problem.message}") from problem

    def _check_apply(self, target: Target, metadata: JsonDict, stored: Stored | None) -> None:
        version, uid = metadata.get("resourceVersion"), metadata.get("uid")
        resource = target.resource
        if stored is None:
            if uid or version:
                raise conflict(
                    resource.group,
                    resource.plural,
                    target.name,
                    f"uid mismatch: the provided object specified uid {uid}, and no existing object was found",
                )
        elif version and version != str(stored.version):
            raise modified(resource.group, resource.plural, target.name)


def _drop_status(resource: Resource, obj: JsonDict) -> None:
    """A new object starts without status, but for nodes, whose agents bring their own."""
    if not resource.has_status or resource.kind == "Node":
        return
    obj.pop("status", None)
    empty = resource.empty()
    if "status" in empty:
        obj["status"] = empty["status"]


def check_type(resource: Resource, body: Any, strict: bool = False) -> None:
    """Refuse a body that is no object of the resource. A built-in kind may leave apiVersion and kind out."""
    if not isinstance(body, dict):
        raise bad_request(f"couldn't get version/kind; json parse error: {type(body).__name__} is no object")
    version, kind = body.get("apiVersion", ""), body.get("kind", "")
    required = resource.custom or strict
    if version != resource.api_version and (version or required):
        words = (
            f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        )
        raise bad_request(words)
    if kind != resource.kind and (kind or required):
        raise bad_request(f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})")
    if not isinstance(body.get("metadata", {}), dict | None):
        raise bad_request("json: cannot unmarshal metadata: it is no object")


def _wrong_name(found: str, wanted: str) -> ApiError:
    return bad_request(f"the name of the object ({found}) does not match the name on the URL ({wanted})")


def _strict(resource: Resource, complaints: str, patched: bool) -> ApiError:
    words = f"strict decoding error: {complaints}"
    if patched:
        return invalid("", "", "", [Cause(INVALID, "patch", f"Invalid value: {words}")])
    kind = resource.kind
    return bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {words}')
