"""Whether the schema of a CustomResourceDefinition is structural, and whether its defaults fit it."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from . import customs, values
from .failures import FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, Cause
from .schema import JsonDict, from_custom

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_NOT_IN_LOGIC = ("type", "description", "title", "default", "nullable", "additionalProperties")
_NEVER = {"$ref": "Forbidden: $ref is not supported", "uniqueItems": "Forbidden: uniqueItems cannot be set to true"}
_ONLY_NAMES = (
    "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
)
_KEY_MUST_BE_SET = (
    "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
    "property"
)
_SCALARS = ("string", "integer", "number", "boolean")


def check(raw: JsonDict, path: str) -> list[Cause]:
    """What is wrong with a schema; `path` is where it stands in the definition."""
    causes: list[Cause] = []
    if raw.get("type") != "object":
        if not raw.get("type"):
            causes.append(Cause(REQUIRED, f"{path}.type", "Required value: must not be empty at the root"))
        else:
            causes.append(
                Cause(
                    INVALID, f"{path}.type", f"Invalid value: {values.shown(raw['type'])}: must be object at the root"
                )
            )
    causes += _check_node(raw, path, root=True)
    causes += _check_metadata(raw, path)
    if not causes:
        causes += _check_defaults(raw, path)
    return causes


def _check_metadata(raw: JsonDict, path: str) -> list[Cause]:
    metadata = raw.get("properties", {}).get("metadata")
    if not isinstance(metadata, Mapping):
        return []
    extra = set(metadata.get("properties", {})) - {"name", "generateName"}
    if extra or set(metadata) - {"type", "properties", "description"}:
        words = _ONLY_NAMES
        return [Cause(FORBIDDEN, f"{path}.properties[metadata]", words)]
    return []


def _check_node(raw: Any, path: str, root: bool = False) -> list[Cause]:
    if not isinstance(raw, Mapping):
        return [Cause(INVALID, path, "Invalid value: a schema must be an object")]
    causes: list[Cause] = []
    if not root:
        causes += _check_type(raw, path)
    causes += _check_keywords(raw, path)
    causes += _check_lists(raw, path)
    causes += _check_logic(raw, path)
    properties = raw.get("properties") or {}
    for key, child in properties.items():
        where = f"{path}.properties[{key}]"
        causes += _missing_type(child, where, "for specified object fields") + _check_node(child, where)
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        where = f"{path}.additionalProperties"
        causes += _missing_type(additional, where, "for specified object fields") + _check_node(additional, where)
        if properties:
            words = "Forbidden: additionalProperties and properties are mutual exclusive"
            causes.append(Cause(FORBIDDEN, where, words))
    elif additional is False:
        causes.append(
            Cause(FORBIDDEN, f"{path}.additionalProperties", "Forbidden: additionalProperties cannot be set to false")
        )
    if "items" in raw:
        causes += _missing_type(raw["items"], f"{path}.items", "for specified array items") + _check_node(
            raw["items"], f"{path}.items"
        )
    elif raw.get("type") == "array":
        causes.append(Cause(REQUIRED, f"{path}.items", "Required value: must be specified"))
    return causes


def _missing_type(raw: Any, path: str, where: str) -> list[Cause]:
    if not isinstance(raw, Mapping) or raw.get("type"):
        return []
    if raw.get("x-kubernetes-int-or-string") or raw.get("x-kubernetes-preserve-unknown-fields"):
        return []
    return [Cause(REQUIRED, f"{path}.type", f"Required value: must not be empty {where}")]


def _check_type(raw: Mapping[str, Any], path: str) -> list[Cause]:
    kind = raw.get("type")
    if kind and kind not in _TYPES:
        listed = ", ".join(f'"{name}"' for name in _TYPES)
        return [
            Cause(NOT_SUPPORTED, f"{path}.type", f"Unsupported value: {values.shown(kind)}: supported values: {listed}")
        ]
    if kind and raw.get("x-kubernetes-int-or-string"):
        words = f"Invalid value: {values.shown(kind)}: must be empty if x-kubernetes-int-or-string is true"
        return [Cause(INVALID, f"{path}.type", words)]
    return []


def _check_keywords(raw: Mapping[str, Any], path: str) -> list[Cause]:
    causes = [Cause(FORBIDDEN, f"{path}.{key}", words) for key, words in _NEVER.items() if raw.get(key)]
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        words = "Invalid value: false: must be true or undefined"
        causes.append(Cause(INVALID, f"{path}.x-kubernetes-preserve-unknown-fields", words))
    if raw.get("x-kubernetes-embedded-resource") and raw.get("type") != "object":
        words = "Invalid value: must be object if x-kubernetes-embedded-resource is true"
        causes.append(Cause(INVALID, f"{path}.type", words))
    if "pattern" in raw:
        try:
            values.pattern(raw["pattern"])
        except re.error as problem:
            found = values.shown(raw["pattern"])
            words = f"Invalid value: {found}: must be a valid regular expression, but isn't: {problem}"
            causes.append(Cause(INVALID, f"{path}.pattern", words))
    if raw.get("enum") is not None and not raw["enum"]:
        causes.append(Cause(REQUIRED, f"{path}.enum", "Required value: must contain at least one value"))
    return causes


def _check_lists(raw: Mapping[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    kind, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys") or []
    where = f"{path}.x-kubernetes-list-type"
    if kind is not None and kind not in ("atomic", "set", "map"):
        words = f'Unsupported value: {values.shown(kind)}: supported values: "atomic", "map", "set"'
        return [Cause(NOT_SUPPORTED, where, words)]
    if kind is not None and raw.get("type") != "array":
        causes.append(
            Cause(INVALID, f"{path}.type", "Invalid value: must be array if x-kubernetes-list-type is specified")
        )
    items = raw.get("items") if isinstance(raw.get("items"), Mapping) else {}
    assert isinstance(items, Mapping)
    if kind == "map" and not keys:
        words = "Required value: must not be empty if x-kubernetes-list-type is map"
        causes.append(Cause(REQUIRED, f"{path}.x-kubernetes-list-map-keys", words))
    for index, key in enumerate(keys):
        child = (items.get("properties") or {}).get(key)
        if child is None:
            words = f"Invalid value: {values.shown(key)}: entries must all be names of item properties"
            causes.append(Cause(INVALID, f"{path}.x-kubernetes-list-map-keys[{index}]", words))
        elif "default" not in child and key not in (items.get("required") or ()):
            words = _KEY_MUST_BE_SET
            causes.append(Cause(REQUIRED, f"{path}.items.properties[{key}].default", words))
    if kind == "set" and items.get("type") not in (*_SCALARS, None) and not _is_atomic(items):
        words = "Invalid value: must be atomic as item of a list with x-kubernetes-list-type=set"
        causes.append(Cause(INVALID, f"{path}.items", words))
    return causes


def _is_atomic(raw: Mapping[str, Any]) -> bool:
    if raw.get("type") == "object":
        return bool(raw.get("x-kubernetes-map-type") == "atomic")
    return bool(raw.get("x-kubernetes-list-type", "atomic") == "atomic")


def _check_logic(raw: Mapping[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    parts: list[tuple[str, Any]] = []
    for key in ("allOf", "anyOf", "oneOf"):
        parts += [(f"{path}.{key}[{index}]", part) for index, part in enumerate(raw.get(key) or ())]
    if "not" in raw:
        parts.append((f"{path}.not", raw["not"]))
    for where, part in parts:
        if not isinstance(part, Mapping):
            continue
        simple = raw.get("x-kubernetes-int-or-string") and set(part) <= {"type"}
        for key in _NOT_IN_LOGIC:
            if key in part and not simple:
                causes.append(Cause(FORBIDDEN, f"{where}.{key}", "Forbidden: must be empty to be structural"))
        for key in part.get("properties") or {}:
            if key not in (raw.get("properties") or {}):
                words = f"Required value: because it is defined in {where.removeprefix(path + '.')}.properties[{key}]"
                causes.append(Cause(REQUIRED, f"{path}.properties[{key}]", words))
    return causes


def _check_defaults(raw: Mapping[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    if "default" in raw:
        causes += _check_default(raw, f"{path}.default")
    for key, child in (raw.get("properties") or {}).items():
        causes += _check_defaults(child, f"{path}.properties[{key}]")
    for key in ("additionalProperties", "items"):
        if isinstance(raw.get(key), Mapping):
            causes += _check_defaults(raw[key], f"{path}.{key}")
    return causes


def _check_default(raw: Mapping[str, Any], path: str) -> list[Cause]:
    schema = from_custom(raw, root=False)
    value = copy.deepcopy(raw["default"])
    unknown: list[str] = []
    if isinstance(value, dict):
        pruned: JsonDict = {}
        for key, item in value.items():
            customs.prune_field(schema, pruned, key, item, "", unknown)
        if unknown:
            words = f"Invalid value: {values.shown(raw['default'])}: must not have unknown fields"
            return [Cause(INVALID, path, words)]
    customs.fill_defaults(schema, value)
    found = values.validate(schema, value)
    return [Cause(cause.reason, f"{path}.{cause.field}" if cause.field else path, cause.message) for cause in found]
