"""Adopting and releasing: which objects a controller may call its own."""

from __future__ import annotations

from .client import ApiClient, Obj, Resource
from .informer import Informer, controller_of
from .selectors import matches


def reference_to(owner: Obj) -> Obj:
    """The owner reference a controller puts on what it makes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


async def claim(
    client: ApiClient, resource: Resource, owner: Obj, informer: Informer, *, in_reach: list[Obj] | None = None
) -> list[Obj]:
    """The objects `owner` controls, after adopting matching orphans and releasing what no longer matches."""
    uid = owner["metadata"]["uid"]
    selector = owner["spec"].get("selector")
    leaving = bool(owner["metadata"].get("deletionTimestamp"))
    claimed = []
    for obj in in_reach if in_reach is not None else informer.in_namespace(owner["metadata"]["namespace"]):
        controller = controller_of(obj)
        fits = matches(selector, obj["metadata"].get("labels"))
        if controller is not None and controller["uid"] == uid:
            if fits or leaving:
                claimed.append(obj)
            else:
                informer.observe(await _release(client, resource, obj, uid))
        elif controller is None and fits and not leaving and not obj["metadata"].get("deletionTimestamp"):
            adopted = await _adopt(client, resource, obj, owner)
            informer.observe(adopted)
            claimed.append(adopted)
    return claimed


async def _adopt(client: ApiClient, resource: Resource, obj: Obj, owner: Obj) -> Obj:
    references = [*(obj["metadata"].get("ownerReferences") or ()), reference_to(owner)]
    return await _write_references(client, resource, obj, references)


async def _release(client: ApiClient, resource: Resource, obj: Obj, uid: str) -> Obj:
    kept = [reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] != uid]
    return await _write_references(client, resource, obj, kept)


async def _write_references(client: ApiClient, resource: Resource, obj: Obj, references: list[Obj]) -> Obj:
    version = obj["metadata"]["resourceVersion"]
    patch = {"metadata": {"ownerReferences": references or None, "resourceVersion": version}}
    return await client.merge(resource, obj, patch)
