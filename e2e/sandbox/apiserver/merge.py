"""Typed comparison, merge and removal of fields: what server-side apply does with two objects and their schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from .fieldsets import FieldSet, Path, item_key, item_value, readable
from .schema import ANYTHING, MISSING, Form, ListType, Schema

NOTHING: Any = object()


class Atom(Enum):
    """What a value is to a merge."""

    LEAF = auto()
    MAP = auto()
    LIST = auto()


class TypedValueError(ValueError):
    """An applied object that does not fit its schema."""


def atom_of(schema: Schema, value: Any) -> Atom:
    """How a value is walked: into its fields or items, or as one piece."""
    if schema.form is not Form.PLAIN:
        return Atom.LEAF
    if isinstance(value, dict) and schema.type in ("object", ""):
        return Atom.LEAF if schema.atomic_map else Atom.MAP
    if isinstance(value, list) and schema.type == "array":
        return Atom.LEAF if schema.list_type is ListType.ATOMIC else Atom.LIST
    return Atom.LEAF


def element_of(schema: Schema, item: Any) -> str:
    """The path element of an item of a set or keyed list. Raises TypedValueError if a key is missing."""
    if schema.list_type is ListType.SET:
        return item_value(item)
    if not isinstance(item, dict):
        raise TypedValueError("associative list may not have non-map elements")
    keys = {}
    for key in schema.list_keys:
        known = schema.items.properties.get(key) if schema.items is not None else None
        value = item.get(key, known.default if known is not None else MISSING)
        if value is MISSING:
            raise TypedValueError(f'element: associative list with keys has an element that omits key field "{key}"')
        keys[key] = value
    return item_key(keys)


def _child(schema: Schema, key: str) -> Schema:
    return schema.child(key) or ANYTHING


def indexed(schema: Schema, items: list[Any] | None) -> dict[str, Any]:
    """The items of a set or keyed list by path element; of equal ones the first."""
    out: dict[str, Any] = {}
    for item in items or ():
        out.setdefault(element_of(schema, item), item)
    return out


@dataclass(slots=True)
class Comparison:
    """What changed between two objects."""

    added: FieldSet = field(default_factory=FieldSet)
    modified: FieldSet = field(default_factory=FieldSet)
    removed: FieldSet = field(default_factory=FieldSet)

    def same(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.modified or self.removed)


def compare(schema: Schema, old: Any, new: Any) -> Comparison:
    """The fields that were added, modified and removed on the way from old to new."""
    out = Comparison()
    _compare(schema, old, new, (), out)
    return out


def _compare(schema: Schema, old: Any, new: Any, path: Path, out: Comparison) -> None:
    if old is not NOTHING and new is not NOTHING and (old is new or old == new) and type(old) is type(new):
        return
    shape = _common_atom(schema, old, new)
    empty = not (old if old is not NOTHING else None) and not (new if new is not NOTHING else None)
    if shape is Atom.LEAF or empty:
        _compare_leaf(old, new, path, out)
        return
    if shape is Atom.MAP:
        before, after = old if isinstance(old, dict) else {}, new if isinstance(new, dict) else {}
        for key in [*before, *(key for key in after if key not in before)]:
            _compare(_child(schema, key), before.get(key, NOTHING), after.get(key, NOTHING), (*path, f"f:{key}"), out)
    else:
        before = indexed(schema, old if isinstance(old, list) else None)
        after = indexed(schema, new if isinstance(new, list) else None)
        items = schema.items or ANYTHING
        for key in [*before, *(key for key in after if key not in before)]:
            _compare(items, before.get(key, NOTHING), after.get(key, NOTHING), (*path, key), out)
    if old is NOTHING:
        out.added.insert(path)
    elif new is NOTHING:
        out.removed.insert(path)


def _common_atom(schema: Schema, old: Any, new: Any) -> Atom:
    values = [value for value in (old, new) if value is not NOTHING and value is not None]
    shapes = {atom_of(schema, value) for value in values}
    return shapes.pop() if len(shapes) == 1 else Atom.LEAF


def _compare_leaf(old: Any, new: Any, path: Path, out: Comparison) -> None:
    if old is NOTHING:
        out.added.insert(path)
    elif new is NOTHING:
        out.removed.insert(path)
    elif old != new or type(old) is not type(new):
        out.modified.insert(path)


def fields_of(schema: Schema, value: Any) -> FieldSet:
    """The paths that whoever applies this value owns."""
    out = FieldSet()
    _fields_of(schema, value, (), out)
    return out


def _fields_of(schema: Schema, value: Any, path: Path, out: FieldSet) -> None:
    shape = atom_of(schema, value)
    if shape is Atom.LEAF:
        if value is not None or schema.type != "array" or schema.list_type is ListType.ATOMIC:
            out.insert(path)
    elif shape is Atom.MAP:
        for key, item in value.items():
            here = (*path, f"f:{key}")
            _fields_of(_child(schema, key), item, here, out)
            if item is None or item == {} or key not in schema.properties:
                out.insert(here)
    else:
        for item in value:
            here = (*path, element_of(schema, item))
            _fields_of(schema.items or ANYTHING, item, here, out)
            out.insert(here)


def with_named_fields(schema: Schema, fields: FieldSet) -> FieldSet:
    """The set, and with it each struct field that leads to one of its paths."""
    out = FieldSet()
    out.members = set(fields.members)
    for key, child in fields.children.items():
        if not child:
            continue
        if key.startswith("f:"):
            name = key[2:]
            if name in schema.properties:
                out.members.add(key)
            below = _child(schema, name)
        else:
            below = schema.items or ANYTHING
        out.children[key] = with_named_fields(below, child)
    return out


def without(schema: Schema, value: Any, fields: FieldSet) -> Any:
    """The value less the paths in `fields`; a list or map that becomes empty becomes null."""
    shape = atom_of(schema, value)
    if shape is Atom.LEAF or not value:
        return value
    if shape is Atom.MAP:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            element = f"f:{key}"
            if element not in fields.members:
                below = fields.children.get(element)
                kept[key] = without(_child(schema, key), item, below) if below else item
        return kept or None
    left = []
    for item in value:
        element = element_of(schema, item)
        if element not in fields.members:
            below = fields.children.get(element)
            left.append(without(schema.items or ANYTHING, item, below) if below else item)
    return left or None


def merge(schema: Schema, live: Any, applied: Any) -> Any:
    """The live value with the applied one laid over it; keyed lists and sets are merged by item."""
    if live is NOTHING or live is None:
        return applied
    if applied is NOTHING:
        return live
    shape = _common_atom(schema, live, applied)
    if shape is Atom.MAP and applied is not None:
        out = dict(live)
        for key, item in applied.items():
            out[key] = merge(_child(schema, key), live.get(key, NOTHING), item)
        return out
    if shape is Atom.LIST and applied is not None:
        return _merge_lists(schema, live, applied)
    return applied


def _merge_lists(schema: Schema, live: list[Any], applied: list[Any]) -> list[Any]:
    """Live items keep their order where they can; where both name an item, the applied order wins."""
    left_keys, right_keys = [element_of(schema, item) for item in live], [element_of(schema, item) for item in applied]
    left, right = indexed(schema, live), indexed(schema, applied)
    shared = [key for key in right_keys if key in left]
    awaited = shared.pop(0) if shared else None
    done: set[str] = set()
    out: list[Any] = []
    items = schema.items or ANYTHING

    def take(key: str) -> None:
        nonlocal awaited
        done.add(key)
        out.append(merge(items, left.get(key, NOTHING), right[key]))
        if awaited == key:
            awaited = shared.pop(0) if shared else None

    at_left = at_right = 0
    while at_left < len(left_keys) or at_right < len(right_keys):
        key = left_keys[at_left] if at_left < len(left_keys) else None
        if key is not None and key in done:
            at_left += 1
        elif key is not None and at_right < len(right_keys) and key == right_keys[at_right]:
            take(key)
            at_left, at_right = at_left + 1, at_right + 1
        elif key is not None and key in right and at_right < len(right_keys) and awaited is not None and awaited != key:
            at_left += 1
        elif key is not None and key not in right:
            out.append(live[at_left])
            at_left += 1
        elif at_right < len(right_keys):
            if right_keys[at_right] not in done:
                take(right_keys[at_right])
            at_right += 1
        else:
            at_left += 1
    return out


def check(schema: Schema, value: Any) -> None:
    """Refuse what cannot be applied: unknown fields, wrong types, doubled keys. Raises TypedValueError."""
    _check(schema, value, ())


_EXPECTED: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    # A fraction is a number here; validation has its own word for it.
    "integer": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}
_WORDS = {"object": "map", "array": "list", "integer": "numeric (int or float)", "number": "numeric (int or float)"}


def _check(schema: Schema, value: Any, path: Path) -> None:
    if value is None or schema.form is not Form.PLAIN:
        return
    expected = _EXPECTED.get(schema.type)
    if expected is not None and not expected(value):
        raise TypedValueError(f"{readable(path)}: expected {_WORDS.get(schema.type, schema.type)}, got {value!r}")
    if isinstance(value, dict):
        _check_fields(schema, value, path)
    elif isinstance(value, list) and schema.items is not None:
        _check_items(schema, value, path)


def _check_fields(schema: Schema, value: dict[str, Any], path: Path) -> None:
    for key, item in value.items():
        child = schema.child(key)
        if child is None and not schema.preserve and schema.type == "object":
            raise TypedValueError(f"{readable((*path, f'f:{key}'))}: field not declared in schema")
        _check(child or ANYTHING, item, (*path, f"f:{key}"))


def _check_items(schema: Schema, value: list[Any], path: Path) -> None:
    assert schema.items is not None
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if schema.list_type is not ListType.ATOMIC:
            try:
                element = element_of(schema, item)
            except TypedValueError as problem:
                raise TypedValueError(f"{readable(path)}: {problem}") from problem
            if element in seen:
                raise TypedValueError(f"{readable(path)}: duplicate entries for key {readable((element,))}")
            seen.add(element)
        _check(schema.items, item, (*path, element))
