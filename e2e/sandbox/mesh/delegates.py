"""Delegation: a root VirtualService hands routes to another one, which says the destinations."""

from collections.abc import Mapping
from typing import Any

from e2e.sandbox.mesh.names import Json

_STRING_FIELDS = ("uri", "scheme", "method", "authority")
_MAP_FIELDS = ("headers", "queryParams", "withoutHeaders")
_INHERITED = (
    "rewrite",
    "directResponse",
    "timeout",
    "retries",
    "fault",
    "mirror",
    "mirrorPercentage",
    "mirrors",
    "corsPolicy",
)


def routes_of(virtual_service: Json, by_key: Mapping[tuple[str, str], Json]) -> list[Json]:
    """The HTTP routes of a VirtualService, with those of its delegates in place of the delegating ones.

    A delegate that is missing, or whose conditions contradict the root's, adds no route. Delegates are one level deep.
    """
    namespace = virtual_service["metadata"].get("namespace", "")
    routes: list[Json] = []
    for root in virtual_service.get("spec", {}).get("http") or []:
        delegate = root.get("delegate")
        if not delegate:
            routes.append(root)
            continue
        target = by_key.get((delegate.get("namespace") or namespace, delegate.get("name", "")))
        for leaf in (target or {}).get("spec", {}).get("http") or []:
            merged = _merge_route(root, leaf)
            if merged is not None and "delegate" not in leaf:
                routes.append(_qualified(merged, delegate.get("namespace") or namespace))
    return routes


def _qualified(route: Json, namespace: str) -> Json:
    """A delegate's short host names belong to the delegate's namespace, not to the root's."""

    def qualify(destination: Json) -> Json:
        host = destination.get("host", "")
        return {**destination, "host": host if "." in host else f"{host}.{namespace}.svc.cluster.local"}

    result = dict(route)
    if "route" in route:
        result["route"] = [{**item, "destination": qualify(item["destination"])} for item in route["route"]]
    if route.get("mirror"):
        result["mirror"] = qualify(route["mirror"])
    return result


def _merge_route(root: Json, leaf: Json) -> Json | None:
    matches = _merge_matches(root.get("match") or [], leaf.get("match") or [])
    if matches is None:
        return None
    merged = dict(leaf)
    if matches:
        merged["match"] = matches
    names = [route["name"] for route in (root, leaf) if route.get("name")]
    if names:
        merged["name"] = "-".join(names)
    for field in _INHERITED:
        if field not in leaf and field in root:
            merged[field] = root[field]
    if "headers" in root or "headers" in leaf:
        merged["headers"] = _merge_headers(root.get("headers", {}), leaf.get("headers", {}))
    return merged


def _merge_headers(root: Json, leaf: Json) -> Json:
    merged: Json = {}
    for direction in ("request", "response"):
        outer, inner = root.get(direction, {}), leaf.get(direction, {})
        if outer or inner:
            merged[direction] = {
                "set": {**outer.get("set", {}), **inner.get("set", {})},
                "add": {**outer.get("add", {}), **inner.get("add", {})},
                "remove": [*outer.get("remove", []), *inner.get("remove", [])],
            }
    return merged


def _merge_matches(root: list[Json], leaf: list[Json]) -> list[Json] | None:
    """The conditions under which both hold; None when a condition of the delegate fits none of the root's."""
    if not root or not leaf:
        return root or leaf
    merged = []
    for inner in leaf:
        fitting = [_merge_match(outer, inner) for outer in root if not _conflict(outer, inner)]
        if not fitting:
            return None
        merged.extend(fitting)
    return merged


def _merge_match(root: Json, leaf: Json) -> Json:
    merged = {**root, **leaf}
    for field in _MAP_FIELDS:
        if field in root and field in leaf:
            merged[field] = {**root[field], **leaf[field]}
    return merged


def _conflict(root: Json, leaf: Json) -> bool:
    if any(_strings_conflict(root.get(field), leaf.get(field)) for field in _STRING_FIELDS):
        return True
    if root.get("port") and leaf.get("port") and root["port"] != leaf["port"]:
        return True
    for field in _MAP_FIELDS:
        outer, inner = root.get(field) or {}, leaf.get(field) or {}
        if any(_strings_conflict(outer[name], inner[name]) for name in outer.keys() & inner.keys()):
            return True
    return False


def _strings_conflict(root: Any, leaf: Any) -> bool:
    """Whether the delegate's condition is not a narrowing of the root's; regular expressions are never compared."""
    if not root or not leaf:
        return False
    if "regex" in root or "regex" in leaf:
        return True
    if "prefix" in root:
        narrower: str = leaf.get("prefix", leaf.get("exact", ""))
        return not narrower.startswith(root["prefix"])
    return bool(root.get("exact") != leaf.get("exact"))
