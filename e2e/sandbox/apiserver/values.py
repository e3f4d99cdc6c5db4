"""A custom object's values against its schema: types, bounds, patterns, required fields, uniqueness."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import orjson

from .failures import DUPLICATE, INVALID, NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID, Cause
from .formats import fits
from .schema import MISSING, Form, JsonDict, ListType, Schema, from_custom

_LIMITS = {"int32": 31, "int64": 63}
_GO_ENDS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""Escapes, character classes and `$`; what is in a class means itself."""


def type_name(value: Any) -> str:
    """The JSON schema type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value == int(value)):
        return "integer"
    names: dict[type, str] = {float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def shown(value: Any) -> str:
    """A value as messages show it."""
    return orjson.dumps(value).decode()


def validate(schema: Schema, value: Any, path: str = "", old: Any = MISSING) -> list[Cause]:
    """All that is wrong with a value. What equals `old`, the stored value, is not held against it again."""
    if old is not MISSING and type(old) is type(value) and old == value:
        return []
    if value is None and schema.nullable:
        return []
    causes = _type(schema, value, path) + _enum(schema, value, path) + _logic(schema, value, path)
    if isinstance(value, str):
        causes += _string(schema.raw, value, path)
    elif isinstance(value, dict):
        causes += _object(schema, value, path, old if isinstance(old, dict) else {})
    elif isinstance(value, list):
        causes += _array(schema, value, path, old)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        causes += _number(schema.raw, value, path)
    return causes


def _type(schema: Schema, value: Any, path: str) -> list[Cause]:
    found = type_name(value)
    if schema.form is Form.INT_OR_STRING:
        fine = found in ("integer", "string")
        wanted = "integer,string"
    else:
        wanted = schema.type
        fine = not wanted or found == wanted or (wanted == "number" and found == "integer")
    if fine:
        return []
    return [Cause(TYPE_INVALID, path, f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"')]


def _enum(schema: Schema, value: Any, path: str) -> list[Cause]:
    allowed = schema.raw.get("enum")
    if allowed is None or any(type(option) is type(value) and option == value for option in allowed):
        return []
    options = ", ".join(shown(option) for option in allowed)
    return [Cause(NOT_SUPPORTED, path, f"Unsupported value: {shown(value)}: supported values: {options}")]


def _wrong(path: str, value: Any, what: str, reason: str = INVALID) -> list[Cause]:
    return [Cause(reason, path, f"Invalid value: {shown(value)}: {path} in body {what}")]


def _number(raw: JsonDict, value: float, path: str) -> list[Cause]:
    causes: list[Cause] = []
    low, high, step = raw.get("minimum"), raw.get("maximum"), raw.get("multipleOf")
    if low is not None and (value < low or (raw.get("exclusiveMinimum") and value == low)):
        causes += _wrong(
            path, value, f"should be greater than {'' if raw.get('exclusiveMinimum') else 'or equal to '}{low}"
        )
    if high is not None and (value > high or (raw.get("exclusiveMaximum") and value == high)):
        causes += _wrong(
            path, value, f"should be less than {'' if raw.get('exclusiveMaximum') else 'or equal to '}{high}"
        )
    if step and not math.isclose(value / step, round(value / step), abs_tol=1e-9):
        causes += _wrong(path, value, f"should be a multiple of {step}")
    bits = _LIMITS.get(raw.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < (1 << bits):
        causes += _wrong(path, value, f"must be of type {raw['format']}")
    return causes


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    """A compiled pattern. Go's `\\z` is Python's `\\Z`; so is its `$`, which in Python may precede a line feed."""
    return re.compile(_GO_ENDS.sub(lambda found: r"\Z" if found[0] in (r"\z", "$") else found[0], text))


def _string(raw: JsonDict, value: str, path: str) -> list[Cause]:
    causes: list[Cause] = []
    longest, shortest = raw.get("maxLength"), raw.get("minLength")
    if longest is not None and len(value) > longest:
        causes.append(Cause(TOO_LONG, path, f"Too long: may not be more than {longest} bytes"))
    if shortest is not None and len(value) < shortest:
        causes += _wrong(path, value, f"should be at least {shortest} chars long")
    if "pattern" in raw and not pattern(raw["pattern"]).search(value):
        causes += _wrong(path, value, f"should match '{raw['pattern']}'")
    if "format" in raw and not fits(raw["format"], value):
        causes += _wrong(path, value, f"must be of type {raw['format']}: {shown(value)}")
    return causes


def _object(schema: Schema, value: JsonDict, path: str, old: JsonDict) -> list[Cause]:
    causes: list[Cause] = []
    prefix = f"{path}." if path else ""
    for key in sorted(schema.required):
        if key not in value:
            causes.append(Cause(REQUIRED, prefix + key, "Required value"))
    for key, item in value.items():
        child = schema.child(key)
        if child is not None and not child.name:
            causes += validate(child, item, prefix + key, old.get(key, MISSING))
    most, least = schema.raw.get("maxProperties"), schema.raw.get("minProperties")
    if most is not None and len(value) > most:
        causes.append(Cause(TOO_MANY, path, f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes += _wrong(path, value, f"should have at least {least} properties")
    return causes


def _array(schema: Schema, value: list[Any], path: str, old: Any) -> list[Cause]:
    causes: list[Cause] = []
    most, least = schema.raw.get("maxItems"), schema.raw.get("minItems")
    if most is not None and len(value) > most:
        causes.append(Cause(TOO_MANY, path, f"Too many: {len(value)}: must have at most {most} items"))
    if least is not None and len(value) < least:
        causes += _wrong(path, value, f"should have at least {least} items")
    if schema.items is not None:
        before = _old_items(schema, old)
        for index, item in enumerate(value):
            stored = before.get(_item_identity(schema, item, index), MISSING)
            causes += validate(schema.items, item, f"{path}[{index}]", stored)
    return causes


def _item_identity(schema: Schema, item: Any, index: int) -> Any:
    """What finds an item's predecessor: its keys in a keyed list; nothing elsewhere."""
    if schema.list_type is ListType.MAP and isinstance(item, dict):
        return shown([item.get(key) for key in schema.list_keys])
    if schema.list_type is ListType.SET:
        return shown(item)
    return None if index >= 0 else index


def _old_items(schema: Schema, old: Any) -> dict[Any, Any]:
    if not isinstance(old, list) or schema.list_type is ListType.ATOMIC:
        return {}
    return {_item_identity(schema, item, index): item for index, item in enumerate(old)}


def _logic(schema: Schema, value: Any, path: str) -> list[Cause]:
    raw = schema.raw
    if not raw.keys() & {"allOf", "anyOf", "oneOf", "not"}:
        return []
    causes: list[Cause] = []
    for part in raw.get("allOf", ()):
        causes += validate(_part(part), value, path)
    if (
        schema.form is not Form.INT_OR_STRING
        and "anyOf" in raw
        and not any(_fits(part, value) for part in raw["anyOf"])
    ):
        causes += _wrong(path, value, "must validate at least one schema (anyOf)")
    if "oneOf" in raw and sum(_fits(part, value) for part in raw["oneOf"]) != 1:
        causes += _wrong(path, value, "must validate one and only one schema (oneOf)")
    if "not" in raw and _fits(raw["not"], value):
        causes += _wrong(path, value, "must not validate the schema (not)")
    return causes


def _part(raw: JsonDict) -> Schema:
    return from_custom(raw, root=False)


def _fits(raw: JsonDict, value: Any) -> bool:
    return not validate(_part(raw), value)


def duplicates(schema: Schema, value: Any, path: str = "") -> list[Cause]:
    """Doubled items of sets and doubled keys of keyed lists."""
    causes: list[Cause] = []
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if child is not None and not child.name:
                causes += duplicates(child, item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and schema.items is not None:
        causes += _doubled(schema, value, path)
        for index, item in enumerate(value):
            causes += duplicates(schema.items, item, f"{path}[{index}]")
    return causes


def _doubled(schema: Schema, value: list[Any], path: str) -> list[Cause]:
    if schema.list_type is ListType.ATOMIC:
        return []
    seen: set[str] = set()
    causes: list[Cause] = []
    for index, item in enumerate(value):
        keyed = schema.list_type is ListType.MAP and isinstance(item, dict)
        identity = shown({key: item.get(key) for key in schema.list_keys} if keyed else item)
        if identity in seen:
            causes.append(Cause(DUPLICATE, f"{path}[{index}]", f"Duplicate value: {identity}"))
        seen.add(identity)
    return causes
