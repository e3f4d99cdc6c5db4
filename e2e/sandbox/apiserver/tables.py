"""Tables, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from . import jsonpaths
from .columns import BUILT_IN, Column
from .definitions import object_meta
from .kinds import Resource
from .schema import JsonDict
from .store import Stored

_NAME_KEYS = ("kind", "apiVersion")


def age(text: str | None, now: datetime) -> str:
    """How long ago a time was, the way kubectl says it: 5s, 3m10s, 2h, 4d3h."""
    if not text:
        return "<unknown>"
    seconds = int((now - datetime.fromisoformat(text)).total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"


def partial(obj: JsonDict) -> JsonDict:
    """Only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _description(key: str) -> str:
    return str(object_meta().properties[key].raw.get("description") or definition_text(key))


def definition_text(key: str) -> str:
    """The description of a metadata field."""
    from .definitions import OBJECT_META, definitions

    return str(definitions()[OBJECT_META]["properties"][key]["description"])


def _name_column() -> JsonDict:
    return {"name": "Name", "type": "string", "format": "name", "description": definition_text("name"), "priority": 0}


def definitions_of(resource: Resource) -> list[JsonDict]:
    """The columns of a resource's table."""
    if resource.custom:
        return [_name_column(), *(_custom_column(column) for column in resource.columns)]
    columns = BUILT_IN.get((resource.group, resource.kind), ())
    out = [_name_column()]
    for column in columns:
        out.append(_built_in_column(column))
    if not columns:
        out.append(
            _built_in_column(Column("Created At", "date", lambda obj, now: obj["metadata"].get("creationTimestamp")))
        )
    return out


def _custom_column(column: JsonDict) -> JsonDict:
    described = (
        column.get("description") or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
    )
    return {
        "name": column["name"],
        "type": column["type"],
        "format": column.get("format", ""),
        "description": described,
        "priority": column.get("priority", 0),
    }


def _built_in_column(column: Column) -> JsonDict:
    described = definition_text("creationTimestamp") if column.name in ("Age", "Created At") else column.description
    return {
        "name": column.name,
        "type": column.type,
        "format": "",
        "description": described,
        "priority": column.priority,
    }


def _cells(resource: Resource, obj: JsonDict, now: datetime) -> list[Any]:
    name = obj["metadata"]["name"]
    if resource.custom:
        return [name, *(_custom_cell(obj, column, now) for column in resource.columns)]
    columns = BUILT_IN.get((resource.group, resource.kind), ())
    if not columns:
        return [name, obj["metadata"].get("creationTimestamp")]
    return [name, *(column.cell(obj, now) for column in columns)]


_CASTS: dict[str, Callable[[Any], Any]] = {
    "integer": lambda value: int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None,
    "number": lambda value: value if isinstance(value, int | float) and not isinstance(value, bool) else None,
    "boolean": lambda value: value if isinstance(value, bool) else None,
}


def _custom_cell(obj: JsonDict, column: JsonDict, now: datetime) -> Any:
    try:
        found = jsonpaths.find(obj, column["jsonPath"])
    except ValueError:
        return None
    if not found:
        return None
    value = found[0]
    if column["type"] == "date":
        return age(value, now) if isinstance(value, str) else None
    cast = _CASTS.get(column["type"])
    if cast is not None:
        return cast(value)
    if value is None or isinstance(value, str):
        return value
    return _go_text(value)


def _go_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import orjson

    return orjson.dumps(value).decode()


def table(
    resource: Resource, items: list[Stored], metadata: JsonDict, include: str, now: datetime, with_columns: bool = True
) -> JsonDict:
    """The table of some objects. `include` says what each row carries: Object, Metadata or None."""
    rows = []
    for stored in items:
        obj = resource.outward(stored.obj)
        row: JsonDict = {"cells": _cells(resource, obj, now.astimezone(UTC))}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial(obj)
        rows.append(row)
    columns = definitions_of(resource) if with_columns else []
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    }
