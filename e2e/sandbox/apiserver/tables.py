"""Tables, as `kubectl get` shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from . import ages, jsonpaths
from .columns import BUILT_IN, CREATED, NAME, Column
from .definitions import definitions
from .kinds import Resource
from .schema import JsonDict
from .store import Stored


def partial(obj: JsonDict) -> JsonDict:
    """Only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _documented(doc: str) -> str:
    """The published description of a field, named as `apps.v1.DeploymentSpec.replicas`."""
    type_name, _, key = doc.rpartition(".")
    prefix = "io.k8s.apimachinery.pkg.apis." if type_name.startswith("meta.") else "io.k8s.api."
    return str(definitions()[prefix + type_name]["properties"][key].get("description", ""))


def _described(column: Column) -> JsonDict:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": _documented(column.doc) if column.doc else column.description,
        "priority": column.priority,
    }


def _columns(resource: Resource) -> tuple[Column, ...]:
    return BUILT_IN.get((resource.group, resource.kind), CREATED)


def definitions_of(resource: Resource) -> list[JsonDict]:
    """The columns of a resource's table."""
    if resource.custom:
        return [_described(NAME), *(_custom_column(column) for column in resource.columns)]
    return [_described(column) for column in _columns(resource)]


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


def _cells(resource: Resource, stored: Stored, now: datetime) -> list[Any]:
    if resource.custom:
        obj = resource.outward(stored.obj)
        return [obj["metadata"]["name"], *(_custom_cell(obj, column, now) for column in resource.columns)]
    # The columns of built-in kinds read the version that is stored.
    return [column.cell(stored.obj, now) for column in _columns(resource)]


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
        return ages.age(value, now) if isinstance(value, str) else None
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
    return orjson.dumps(value).decode()


def table(
    resource: Resource, items: list[Stored], metadata: JsonDict, include: str, now: datetime, with_columns: bool = True
) -> JsonDict:
    """The table of some objects. `include` says what each row carries: Object, Metadata or None."""
    rows = []
    for stored in items:
        obj = resource.outward(stored.obj)
        row: JsonDict = {"cells": _cells(resource, stored, now.astimezone(UTC))}
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
