"""Custom objects on the way in: unknown fields are pruned, nulls dropped, defaults filled in."""

from __future__ import annotations

import copy
from typing import Any

from . import typed
from .definitions import OBJECT_META
from .schema import MISSING, Form, JsonDict, Schema

_META = ("apiVersion", "kind", "metadata")


def decode(schema: Schema, value: JsonDict, kind: str) -> tuple[JsonDict, list[str]]:
    """A new object with only known fields and all defaults, and the paths of the fields that were dropped."""
    unknown: list[str] = []
    out: JsonDict = {}
    for key, item in value.items():
        if key == "metadata":
            run = typed.Decoding(kind)
            out[key] = typed.codec_of(OBJECT_META).read(item if item is not None else {}, run, ".metadata")
            unknown += run.unknown
        elif key in _META:
            out[key] = item
        else:
            prune_field(schema, out, key, item, "", unknown)
    fill_defaults(schema, out)
    return out, unknown


def prune_field(schema: Schema, out: JsonDict, key: str, item: Any, path: str, unknown: list[str]) -> None:
    """Put one field into `out`, pruned; a field nobody knows goes to `unknown` instead."""
    here = f"{path}.{key}" if path else key
    child = schema.child(key)
    if child is None:
        if schema.preserve:
            out[key] = item
        else:
            unknown.append(here)
        return
    if item is None and not child.nullable and child.form is Form.PLAIN and not child.preserve:
        return
    out[key] = _prune(child, item, here, unknown)


def _prune(schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict) and schema.type in ("object", ""):
        if schema.embedded:
            return _prune_embedded(schema, value, path, unknown)
        out: JsonDict = {}
        for key, item in value.items():
            prune_field(schema, out, key, item, path, unknown)
        return out
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        return [_prune(items, item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    return value


def _prune_embedded(schema: Schema, value: JsonDict, path: str, unknown: list[str]) -> JsonDict:
    out: JsonDict = {}
    for key, item in value.items():
        if key in _META:
            out[key] = item
        else:
            prune_field(schema, out, key, item, path, unknown)
    return out


def fill_defaults(schema: Schema, value: Any) -> None:
    """Set the defaults of missing fields, in place."""
    if not schema.has_defaults:
        return
    if isinstance(value, dict):
        _default_fields(schema, value)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            fill_defaults(schema.items, item)


def _default_fields(schema: Schema, value: JsonDict) -> None:
    for key, child in schema.properties.items():
        if child.default is not MISSING and (key not in value or (value[key] is None and not child.nullable)):
            value[key] = copy.deepcopy(child.default)
        if key in value and not child.name:
            fill_defaults(child, value[key])
    if schema.additional is not None:
        for key, item in value.items():
            if key not in schema.properties:
                fill_defaults(schema.additional, item)
