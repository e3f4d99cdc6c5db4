"""Which part of an object each endpoint writes, and when a write moves its generation."""

from __future__ import annotations

from .kinds import Resource
from .schema import JsonDict


def scoped(resource: Resource, part: str, new: JsonDict, old: JsonDict) -> JsonDict:
    """What of `new` an endpoint writes; the rest stays as it is stored."""
    if part == "status":
        metadata = dict(old["metadata"])
        for key in ("managedFields", "uid"):
            if key in new["metadata"]:
                metadata[key] = new["metadata"][key]
        out = {**old, "metadata": metadata}
        if "status" in new:
            out["status"] = new["status"]
        else:
            out.pop("status", None)
        return out
    out = {**new, "metadata": dict(new["metadata"])}
    if resource.has_status:
        out.pop("status", None)
        if "status" in old:
            out["status"] = old["status"]
    return out


def writable(resource: Resource, part: str, applied: JsonDict) -> JsonDict:
    """The fields of an applied object that this endpoint writes."""
    if part == "status":
        metadata = {key: value for key, value in applied.get("metadata", {}).items() if key in ("name", "namespace")}
        kept: JsonDict = {key: applied[key] for key in ("apiVersion", "kind", "status") if key in applied}
        kept["metadata"] = metadata
        return kept
    if resource.has_status:
        return {key: value for key, value in applied.items() if key != "status"}
    return applied


def keep_system_fields(new: JsonDict, old: JsonDict) -> None:
    """Put the metadata only the server sets back to what is stored, in place."""
    for key in ("uid", "creationTimestamp"):
        if not new.get(key):
            new[key] = old[key]
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        if key in old:
            new[key] = old[key]
        else:
            new.pop(key, None)
    new.pop("selfLink", None)


def counts(resource: Resource, new: JsonDict, old: JsonDict, part: str) -> bool:
    """Whether a change moves the object's generation."""
    if part == "status":
        return False
    if not resource.custom:
        return resource.rules.counts is not None and resource.rules.counts(new, old)
    ignored = ("metadata", "status") if resource.has_status else ("metadata",)
    keys = (new.keys() | old.keys()) - set(ignored)
    return any(new.get(key) != old.get(key) for key in keys)
