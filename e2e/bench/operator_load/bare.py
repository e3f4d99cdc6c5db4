"""The bare client: it creates the objects that the operator would create, and does nothing else."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from slipway.kube.kinds import CHILDREN

from e2e.sandbox.controllers.client import ApiClient, ApiError, Obj, Resource

__all__ = ["copies", "create_all", "delete_all", "family"]

Family = Sequence[tuple[Resource, Obj]]
"""A ModelDeployment and what belongs to it."""


async def family(client: ApiClient, namespace: str, name: str) -> list[tuple[Resource, Obj]]:
    """Every object that the operator has made for a ModelDeployment."""
    found: list[tuple[Resource, Obj]] = []
    for kind in CHILDREN:
        resource = Resource(kind.group, kind.version, kind.plural, kind.name)
        try:
            listed = await client.list_all(resource, namespace=namespace)
        except ApiError as error:
            if error.not_found:
                continue
            raise
        found += [
            (resource, {"apiVersion": resource.api_version, "kind": resource.kind, **obj})
            for obj in listed["items"]
            if (obj["metadata"].get("labels") or {}).get("slipway.dev/model-deployment") == name
        ]
    return found


def copies(objects: Iterable[tuple[Resource, Obj]], namespace: str, old: str, new: str) -> list[tuple[Resource, Obj]]:
    """The same objects for another ModelDeployment in another namespace, ready to be created."""
    return [(resource, _renamed(_fresh(obj, namespace), old, new)) for resource, obj in objects]


def _fresh(obj: Obj, namespace: str) -> Obj:
    meta = obj["metadata"]
    kept = {field: meta[field] for field in ("name", "labels", "annotations") if field in meta}
    body = {field: value for field, value in obj.items() if field not in ("metadata", "status")}
    if body["kind"] == "Service":
        body["spec"] = {field: value for field, value in body["spec"].items() if not field.startswith("clusterIP")}
    return {**body, "metadata": {**kept, "namespace": namespace}}


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_renamed(one, old, new) for one in value]
    if isinstance(value, dict):
        return {_renamed(key, old, new): _renamed(one, old, new) for key, one in value.items()}
    return value


async def create_all(client: ApiClient, families: Sequence[Family], at_once: int) -> None:
    """Create the objects of each family one after the other, ``at_once`` families at a time."""

    async def create(objects: Family) -> None:
        for resource, obj in objects:
            await client.create(resource, obj)

    await _each(families, create, at_once)


async def delete_all(client: ApiClient, families: Sequence[Family], at_once: int) -> None:
    """Delete what was created, whatever has become of it."""

    async def delete(objects: Family) -> None:
        for resource, obj in objects:
            await client.request("DELETE", resource.path_of(obj))

    await _each(families, delete, at_once)


async def _each(families: Sequence[Family], act: Callable[[Family], Awaitable[None]], at_once: int) -> None:
    waiting = iter(families)

    async def work() -> None:
        for objects in waiting:
            await act(objects)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
