"""Who owns which field: `metadata.managedFields` kept up to date for updates and for server-side apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from . import merge
from .failures import MANAGER_CONFLICT, Cause, apply_conflict, bad_request, internal
from .fieldsets import FieldSet, Path, decode, readable
from .schema import JsonDict, Schema

APPLY, UPDATE = "Apply", "Update"
_MOST_UPDATE_MANAGERS = 10
_KUBECTL, _LAST_APPLIED = "kubectl", "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE_FIRST_APPLY = "before-first-apply"
_STRIPPED: tuple[Path, ...] = (
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(("f:metadata", f"f:{name}") for name in ("name", "namespace", "creationTimestamp", "selfLink", "uid")),
    *(("f:metadata", f"f:{name}") for name in ("generation", "managedFields", "resourceVersion", "clusterName")),
    *(("f:metadata", f"f:{name}") for name in ("deletionTimestamp", "deletionGracePeriodSeconds")),
)


def _stripped() -> FieldSet:
    out = FieldSet()
    for path in _STRIPPED:
        out.insert(path)
    return out


STRIPPED = _stripped()


@dataclass(frozen=True, slots=True)
class Manager:
    """Whoever writes: a name, how it writes and through which subresource; updates also by API version."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def identity(self) -> tuple[str, str, str, str]:
        """What tells two managers apart. An applier is one whatever version it writes."""
        version = self.api_version if self.operation == UPDATE else ""
        return (self.name, self.operation, version, self.subresource)

    def label(self) -> str:
        """The manager as conflict messages name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


@dataclass(frozen=True, slots=True)
class Ownership:
    """The fields of one manager and when it last changed them."""

    manager: Manager
    fields: FieldSet
    time: str


Owners = dict[tuple[str, str, str, str], Ownership]


def read_owners(entries: list[JsonDict] | None) -> Owners:
    """The owners that `managedFields` tells of. Raises ApiError 400 if it cannot be read."""
    owners: Owners = {}
    for entry in entries or ():
        manager = Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        )
        try:
            fields = decode(entry.get("fieldsV1") or {})
        except ValueError as problem:
            raise bad_request(f"invalid managedFields: {problem}") from problem
        owners[manager.identity()] = Ownership(manager, fields, entry.get("time", ""))
    return owners


def write_owners(owners: Owners) -> list[JsonDict]:
    """`managedFields` for these owners, appliers first, then by time."""
    ordered = sorted(owners.values(), key=lambda o: (o.manager.operation, o.time, o.manager.name, o.manager.identity()))
    return [_entry(owner) for owner in ordered]


def _entry(owner: Ownership) -> JsonDict:
    manager = owner.manager
    entry: JsonDict = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.api_version}
    if owner.time:
        entry["time"] = owner.time
    entry |= {"fieldsType": "FieldsV1", "fieldsV1": owner.fields.encode()}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _without_managed_fields(obj: JsonDict) -> JsonDict:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _set_owners(obj: JsonDict, owners: Owners) -> JsonDict:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    if owners:
        metadata["managedFields"] = write_owners(owners)
    return {**obj, "metadata": metadata}


def _last_applied(schema: Schema, live: JsonDict) -> FieldSet:
    """The fields that kubectl applied on the client's side; it may take them over without force."""
    text = (live.get("metadata", {}).get("annotations") or {}).get(_LAST_APPLIED)
    try:
        return merge.fields_of(schema, orjson.loads(text)) if text else FieldSet()
    except (orjson.JSONDecodeError, merge.TypedValueError, AttributeError):
        return FieldSet()


def _reassign(
    owners: Owners, changed: merge.Comparison, skip: Manager | None, force: bool, allowed: FieldSet | None = None
) -> Owners:
    """Take changed and removed fields from the other owners.

    Raises ApiError 409 unless `force`, or if all that is taken is `allowed`.
    """
    touched = changed.modified.union(changed.added)
    conflicts: list[tuple[Manager, Path]] = []
    out: Owners = {}
    for key, owner in owners.items():
        if skip is not None and key == skip.identity():
            out[key] = owner
            continue
        common = owner.fields.intersection(touched)
        conflicts += [(owner.manager, path) for path in common.paths()]
        fields = owner.fields.difference(common).difference(changed.removed)
        if fields:
            out[key] = replace(owner, fields=fields)
    refused = [entry for entry in conflicts if allowed is None or not allowed.has(entry[1])]
    if refused and not force:
        raise _conflict(refused)
    return out


def _conflict(conflicts: list[tuple[Manager, Path]]) -> Exception:
    causes = [
        Cause(MANAGER_CONFLICT, readable(path), f"conflict with {manager.label()}") for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        return apply_conflict(
            f"Apply failed with 1 conflict: conflict with {manager.label()}: {readable(path)}", causes
        )
    lines: list[str] = []
    for label in sorted({manager.label() for manager, _ in conflicts}):
        lines.append(f"conflicts with {label}:")
        lines += [f"- {readable(path)}" for manager, path in conflicts if manager.label() == label]
    return apply_conflict(f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines), causes)


def record_update(schema: Schema, old: JsonDict, new: JsonDict, manager: Manager, now: str) -> JsonDict:
    """The new object with `managedFields` for a change by create, update or patch.

    `old` is the stored object, or an empty one of the kind for a create. The owners are those the writer sent,
    else the stored ones; an empty list sent on purpose forgets them all.
    """
    sent = new.get("metadata", {}).get("managedFields")
    stored = old.get("metadata", {}).get("managedFields")
    owners = {} if sent in ([], [{}]) else read_owners(sent if sent is not None else stored)
    if not owners and old.get("metadata", {}).get("uid"):
        # An object whose owners were never tracked, or forgotten on purpose, stays untracked until the next apply.
        return _set_owners(new, owners)
    changed = merge.compare(schema, _without_managed_fields(old), _without_managed_fields(new))
    mine = changed.modified.union(changed.added).difference(STRIPPED)
    owners = _reassign(owners, changed, None, force=True)
    if mine:
        known = owners.get(manager.identity())
        fields = mine.union(known.fields) if known else mine
        owners[manager.identity()] = Ownership(manager, fields, now)
        owners = _cap(owners, now)
    return _set_owners(new, owners)


def owns(obj: JsonDict, path: Path) -> bool:
    """Whether any manager owns a field of an object."""
    return any(owner.fields.has(path) for owner in read_owners(obj["metadata"].get("managedFields")).values())


def _cap(owners: Owners, now: str) -> Owners:
    """Melt the oldest update managers into one when there are too many."""
    updates = [owner for owner in owners.values() if owner.manager.operation == UPDATE]
    surplus = len(updates) - _MOST_UPDATE_MANAGERS
    if surplus <= 0:
        return owners
    updates.sort(key=lambda owner: (owner.time, owner.manager.name))
    for owner in updates[: surplus + 1]:
        del owners[owner.manager.identity()]
        bucket = Manager("ancient-changes", UPDATE, owner.manager.api_version, owner.manager.subresource)
        known = owners.get(bucket.identity())
        fields = owner.fields.union(known.fields) if known else owner.fields
        owners[bucket.identity()] = Ownership(bucket, fields, owner.time or now)
    return owners


def apply(
    schema: Schema,
    empty: JsonDict,
    live: JsonDict,
    applied: JsonDict,
    manager: Manager,
    now: str,
    force: bool,
    label: str,
    reset: Callable[[JsonDict], JsonDict],
) -> JsonDict:
    """Server-side apply: the live object with the applied one merged in and `managedFields` to match.

    `empty` is an object of the kind with nothing set. `reset` takes the fields out of an object that this endpoint does
    not write (status, or all but status).
    `label` names the object in messages. Raises ApiError: 409 for conflicts, 400 and 500 for a body that does not fit.
    """
    if applied.get("metadata", {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    applied = reset(_without_managed_fields(applied))
    try:
        merge.check(schema, applied)
    except merge.TypedValueError as problem:
        raise internal(f"failed to create typed patch object ({label}): {problem}") from problem
    owners = read_owners(live.get("metadata", {}).get("managedFields"))
    bare = _without_managed_fields(live)
    if not owners and live.get("metadata", {}).get("uid"):
        before_first = Manager(_BEFORE_FIRST_APPLY, UPDATE, manager.api_version)
        everything = merge.compare(schema, empty, bare).added.union(merge.compare(schema, empty, bare).modified)
        owners[before_first.identity()] = Ownership(before_first, everything.difference(STRIPPED), now)
    before = owners.get(manager.identity())
    mine = merge.fields_of(schema, applied).difference(STRIPPED)
    new_owners = dict(owners)
    if mine:
        new_owners[manager.identity()] = Ownership(manager, mine, now)
    else:
        new_owners.pop(manager.identity(), None)
    merged = merge.merge(schema, bare, applied)
    if before is not None and before.fields:
        merged = _prune(schema, merged, new_owners, before.fields)
    changed = merge.compare(schema, bare, merged)
    allowed = _last_applied(schema, bare) if manager.name == _KUBECTL else FieldSet()
    new_owners = _reassign(new_owners, changed, manager, force, allowed)
    unchanged = before is not None and mine == before.fields and changed.same()
    if unchanged and before is not None:
        new_owners[manager.identity()] = before
    return _set_owners(merged, new_owners)


def _prune(schema: Schema, merged: JsonDict, owners: Owners, before: FieldSet) -> JsonDict:
    """Remove what the manager applied last time, no longer applies, and nobody else owns."""
    named = merge.with_named_fields
    last = named(schema, before)
    merged_fields = named(schema, merge.fields_of(schema, merged))
    pruned: Any = merge.without(schema, merged, last) or {}
    owned = FieldSet()
    for owner in owners.values():
        owned = owned.union(owner.fields)
    keep = named(schema, merge.fields_of(schema, pruned)).union(named(schema, owned))
    pruned = merge.without(schema, merged, merged_fields.difference(keep)) or {}
    gone = merged_fields.difference(named(schema, merge.fields_of(schema, pruned))).intersection(last)
    out: JsonDict = merge.without(schema, merged, gone) or {}
    return out
