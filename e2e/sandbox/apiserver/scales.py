"""The scale subresource: replicas of a Deployment, ReplicaSet or custom object, read and written on their own."""

from __future__ import annotations

from typing import Any

from . import jsonpaths
from .failures import INVALID, Cause, bad_request, invalid
from .kinds import Resource, dig
from .schema import JsonDict
from .selectors import as_text
from .store import Stored

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def scale_of(resource: Resource, stored: Stored) -> JsonDict:
    """The Scale of an object."""
    obj = resource.outward(stored.obj)
    metadata = {key: obj["metadata"][key] for key in _META if key in obj["metadata"]}
    wanted, current, selector = _read(resource, obj)
    status: JsonDict = {"replicas": current or 0}
    if selector:
        status["selector"] = selector
    spec = {"replicas": wanted} if wanted else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _read(resource: Resource, obj: JsonDict) -> tuple[int, int, str]:
    if resource.scale_paths is None:
        return (
            dig(obj, "spec", "replicas") or 0,
            dig(obj, "status", "replicas") or 0,
            as_text(dig(obj, "spec", "selector")),
        )
    found = {key: jsonpaths.find(obj, path) for key, path in resource.scale_paths.items() if path}
    wanted, current = found["specReplicasPath"], found["statusReplicasPath"]
    selector = found.get("labelSelectorPath") or [""]
    return wanted[0] if wanted else 0, current[0] if current else 0, selector[0]


def with_scale(resource: Resource, obj: JsonDict, scale: Any) -> JsonDict:
    """The object with the replicas of a Scale. Raises ApiError 400 and 422."""
    if not isinstance(scale, dict) or scale.get("kind", "Scale") != "Scale":
        raise bad_request("expected input object type to be Scale")
    replicas = dig(scale, "spec", "replicas")
    replicas = 0 if replicas is None else replicas
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise bad_request("json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32")
    if replicas < 0 and not resource.custom:
        words = f"Invalid value: {replicas}: must be greater than or equal to 0"
        name = obj["metadata"]["name"]
        raise invalid("autoscaling", "Scale", name, [Cause(INVALID, "spec.replicas", words)])
    path = replicas_path(resource)
    metadata = dict(obj["metadata"])
    sent = dig(scale, "metadata", "resourceVersion")
    if sent:
        metadata["resourceVersion"] = sent
    return _set({**obj, "metadata": metadata}, path, replicas)


def replicas_path(resource: Resource) -> tuple[str, ...]:
    """Where an object keeps the replicas wanted."""
    if resource.scale_paths is None:
        return ("spec", "replicas")
    return jsonpaths.field_path(resource.scale_paths["specReplicasPath"])


def _set(node: JsonDict, path: tuple[str, ...], value: Any) -> JsonDict:
    if len(path) == 1:
        return {**node, path[0]: value}
    return {**node, path[0]: _set(node.get(path[0]) or {}, path[1:], value)}
