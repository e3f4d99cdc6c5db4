"""One model of an object's structure: of built-in kinds from the published schemas, of custom ones from their CRD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

JsonDict = dict[str, Any]
MISSING: Any = object()


class ListType(Enum):
    """How the items of a list are told apart when it is merged."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class Form(Enum):
    """How a value is spelled, where the JSON type alone does not say."""

    PLAIN = "plain"
    TIME = "time"
    MICRO_TIME = "micro-time"
    QUANTITY = "quantity"
    INT_OR_STRING = "int-or-string"
    BYTES = "bytes"


@dataclass(slots=True)
class Patching:
    """How strategic merge treats one field: its strategies and, for a list of objects, its merge key."""

    strategies: frozenset[str] = frozenset()
    merge_key: str = ""


@dataclass(slots=True, eq=False)
class Schema:
    """One node of a structure. `type` is a JSON schema type, or empty for anything."""

    type: str = ""
    name: str = ""
    properties: dict[str, Schema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: Schema | None = None
    items: Schema | None = None
    list_type: ListType = ListType.ATOMIC
    list_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    preserve: bool = False
    embedded: bool = False
    nullable: bool = False
    form: Form = Form.PLAIN
    default: Any = MISSING
    patching: dict[str, Patching] = field(default_factory=dict)
    raw: JsonDict = field(default_factory=dict)
    has_defaults: bool = True

    def child(self, key: str) -> Schema | None:
        """The schema of field `key` of an object; None if nothing is known of it."""
        found = self.properties.get(key)
        return found if found is not None else self.additional


# A value of any shape: one whose fields have owners of their own, and one that is owned as a whole.
ANYTHING = Schema(preserve=True)
OPAQUE = Schema(preserve=True, atomic_map=True)


def from_custom(raw: Mapping[str, Any], metadata: Schema | None = None, root: bool = True) -> Schema:
    """The structure of a custom resource from its structural schema; `metadata` is the schema of ObjectMeta."""
    node = Schema(
        type=str(raw.get("type", "")),
        required=frozenset(raw.get("required", ())),
        list_type=ListType(raw.get("x-kubernetes-list-type", "atomic")),
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys", ())),
        atomic_map=raw.get("x-kubernetes-map-type") == "atomic",
        preserve=bool(raw.get("x-kubernetes-preserve-unknown-fields", False)),
        embedded=bool(raw.get("x-kubernetes-embedded-resource", False)),
        nullable=bool(raw.get("nullable", False)),
        form=Form.INT_OR_STRING if raw.get("x-kubernetes-int-or-string") else Form.PLAIN,
        default=raw.get("default", MISSING),
        raw=dict(raw),
    )
    for key, value in raw.get("properties", {}).items():
        node.properties[key] = from_custom(value, metadata, root=False)
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        node.additional = from_custom(additional, metadata, root=False)
    elif additional is True:
        node.additional = ANYTHING
    if isinstance(raw.get("items"), Mapping):
        node.items = from_custom(raw["items"], metadata, root=False)
    if (root or node.embedded) and metadata is not None:
        _add_type_meta(node, metadata)
    node.has_defaults = _has_defaults(node)
    return node


def _add_type_meta(node: Schema, metadata: Schema) -> None:
    node.properties["apiVersion"] = Schema(type="string", has_defaults=False)
    node.properties["kind"] = Schema(type="string", has_defaults=False)
    node.properties["metadata"] = metadata


def _has_defaults(node: Schema) -> bool:
    below = [*node.properties.values(), *(part for part in (node.items, node.additional) if part is not None)]
    return any(child.default is not MISSING or (child.has_defaults and not child.name) for child in below)
