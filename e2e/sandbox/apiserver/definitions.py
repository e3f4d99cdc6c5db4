"""The published schemas of Kubernetes' own types, read from the package `kubernetes-validate`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from .schema import OPAQUE, Form, JsonDict, ListType, Patching, Schema

RELEASE = "v1.36.0"
_PREFIX = "#/$defs/"
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_FORMS = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": Form.TIME,
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": Form.MICRO_TIME,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": Form.QUANTITY,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": Form.INT_OR_STRING,
}
_FREE = {
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
}


@cache
def definitions() -> dict[str, JsonDict]:
    """All published definitions by name."""
    # Found, not imported: with its validators the package takes a second and a half to come up.
    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("kubernetes-validate is not installed")
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"{RELEASE}-local"
    loaded: dict[str, JsonDict] = orjson.loads((folder / "_definitions.json").read_bytes())["$defs"]
    return loaded


@cache
def definition_of(group: str, version: str, kind: str) -> str:
    """The name of the definition of a kind. Raises KeyError if there is none."""
    wanted = {"group": group, "kind": kind, "version": version}
    for name, raw in definitions().items():
        if wanted in raw.get("x-kubernetes-group-version-kind", ()):
            return name
    raise KeyError(f"{group}/{version} {kind}")


_known: dict[str, Schema] = {}


def schema_of(name: str) -> Schema:
    """The structure of a definition; one object per name, so that types may refer to themselves."""
    if name in _known:
        return _known[name]
    if name in _FREE:
        _known[name] = OPAQUE
        return OPAQUE
    if name in _FORMS:
        _known[name] = Schema(type="" if _FORMS[name] is Form.INT_OR_STRING else "string", form=_FORMS[name])
        return _known[name]
    node = _known[name] = Schema(name=name)
    _fill(node, definitions()[name])
    return node


def _fill(node: Schema, raw: JsonDict) -> None:
    node.type = _type(raw)
    node.raw = raw
    node.required = frozenset(raw.get("required", ()))
    node.atomic_map = raw.get("x-kubernetes-map-type") == "atomic"
    node.list_type = ListType(raw.get("x-kubernetes-list-type", "atomic"))
    node.list_keys = tuple(raw.get("x-kubernetes-list-map-keys", ()))
    if raw.get("format") == "byte":
        node.form = Form.BYTES
    for key, value in raw.get("properties", {}).items():
        node.properties[key] = _build(value)
        strategies = frozenset(filter(None, value.get("x-kubernetes-patch-strategy", "").split(",")))
        merge_key = value.get("x-kubernetes-patch-merge-key", "")
        if strategies or merge_key:
            node.patching[key] = Patching(strategies, merge_key)
    if isinstance(raw.get("additionalProperties"), dict):
        node.additional = _build(raw["additionalProperties"])
    if isinstance(raw.get("items"), dict):
        node.items = _build(raw["items"])
        if "protocol" in node.list_keys:
            node.items.properties["protocol"].default = "TCP"
    node.preserve = node.type == "object" and not node.properties and node.additional is None


def _build(raw: JsonDict) -> Schema:
    if "$ref" in raw:
        return schema_of(raw["$ref"].removeprefix(_PREFIX))
    node = Schema()
    _fill(node, raw)
    return node


def _type(raw: JsonDict) -> str:
    found: Any = raw.get("type", "")
    if isinstance(found, list):
        return next(str(entry) for entry in found if entry != "null")
    return str(found)


def object_meta() -> Schema:
    """The structure of `metadata`."""
    return schema_of(OBJECT_META)
