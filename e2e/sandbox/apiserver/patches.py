"""JSON patch, JSON merge patch and strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import jsonpointer

from .failures import bad_request, unprocessable
from .schema import JsonDict, Patching, Schema

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
APPLY_PATCH_CBOR = "application/apply-patch+cbor"

_DIRECTIVE, _RETAIN = "$patch", "$retainKeys"
_DELETE_PRIMITIVE, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def json_patch(obj: JsonDict, operations: Any) -> JsonDict:
    """RFC 6902. Raises ApiError: 400 for what is no patch, 422 for one that cannot be applied."""
    if not isinstance(operations, list) or not all(isinstance(entry, dict) for entry in operations):
        raise bad_request("error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        patched: JsonDict = jsonpatch.JsonPatch(operations).apply(obj)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as problem:
        raise unprocessable() from problem
    return patched


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def strategic_merge(schema: Schema, target: JsonDict, patch: JsonDict) -> JsonDict:
    """Kubernetes' own patch: lists merge by key where the schema says so. Raises ApiError 400 for a malformed one."""
    return _merge_maps(schema, copy.deepcopy(target), patch)


def _merge_maps(schema: Schema, target: JsonDict, patch: JsonDict) -> JsonDict:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"unknown patch type: {directive}")
    if isinstance(patch.get(_RETAIN), list):
        target = {key: value for key, value in target.items() if key in patch[_RETAIN]}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_PRIMITIVE):
            _delete_primitives(target, key.removeprefix(_DELETE_PRIMITIVE), value)
        elif value is None:
            target.pop(key, None)
        else:
            _merge_field(schema, target, key, value, patch.get(_ORDER + key))
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(target.get(name), list):
            target[name] = _ordered(schema.patching.get(name, Patching()), target[name], order, [], target[name])
    return target


def _delete_primitives(target: JsonDict, key: str, values: Any) -> None:
    if isinstance(target.get(key), list):
        target[key] = [item for item in target[key] if item not in values]


def _merge_field(schema: Schema, target: JsonDict, key: str, value: Any, order: list[Any] | None) -> None:
    child = schema.child(key) or Schema()
    patching = schema.patching.get(key, Patching())
    if isinstance(value, dict):
        replaces = "replace" in patching.strategies
        before = target.get(key) if isinstance(target.get(key), dict) and not replaces else {}
        merged = _merge_maps(child, before or {}, value)
        if value.get(_DIRECTIVE) == "delete":
            target.pop(key, None)
        else:
            target[key] = merged
    elif isinstance(value, list):
        before_list = target.get(key) if isinstance(target.get(key), list) else []
        target[key] = _merge_lists(child, patching, before_list or [], value, order)
    else:
        target[key] = value


def _merge_lists(
    schema: Schema, patching: Patching, target: list[Any], patch: list[Any], order: list[Any] | None
) -> list[Any]:
    plain = [item for item in patch if not (isinstance(item, dict) and item.get(_DIRECTIVE) in ("replace", "delete"))]
    if "merge" not in patching.strategies or any(_is_replace(item) for item in patch):
        return [_without_directives(item) for item in plain]
    if not patching.merge_key:
        merged = [*target, *(item for item in plain if item not in target)]
        return _ordered(patching, merged, order, plain, target)
    key, items = patching.merge_key, schema.items or Schema()
    result = list(target)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        if item.get(_DIRECTIVE) == "delete":
            result = [found for found in result if found.get(key) != item[key]]
            continue
        at = next((i for i, found in enumerate(result) if found.get(key) == item[key]), None)
        if at is None:
            result.append(_merge_maps(items, {}, item))
        else:
            result[at] = _merge_maps(items, result[at], item)
    return _ordered(patching, result, order, plain, target)


def _is_replace(item: Any) -> bool:
    return isinstance(item, dict) and item.get(_DIRECTIVE) == "replace"


def _without_directives(value: Any) -> Any:
    if isinstance(value, dict):
        special = (_DIRECTIVE, _RETAIN)
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if key not in special and not key.startswith(_ORDER)
        }
    return value


def _ordered(
    patching: Patching, merged: list[Any], order: list[Any] | None, patch: list[Any], live: list[Any]
) -> list[Any]:
    """The merged items in the order the patch asks for: that of its list of keys, else of its own items.

    Items the patch does not name keep their order; of two that were both live before, the earlier stays in front.
    """

    def identity(item: Any) -> Any:
        return item.get(patching.merge_key) if isinstance(item, dict) and patching.merge_key else item

    wanted = [
        identity(item) if order is None or isinstance(item, dict) else item
        for item in (patch if order is None else order)
    ]
    named = sorted((item for item in merged if identity(item) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in merged if identity(item) not in wanted]
    places = [identity(item) for item in live]

    def in_front(left: Any, right: Any) -> bool:
        one, two = identity(left), identity(right)
        return one in places and two in places and places.index(one) < places.index(two)

    out: list[Any] = []
    while named and others:
        out.append(others.pop(0) if in_front(others[0], named[0]) else named.pop(0))
    return out + named + others
