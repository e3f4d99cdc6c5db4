"""Who else claims a host that a ModelDeployment wants to be reached at."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipway.kube.cache import Cache
from slipway.kube.kinds import HTTP_ROUTE, VIRTUAL_SERVICE
from slipway.kube.metadata import Key, controller, created_at, is_ours, key_of

__all__ = ["claimed_by_others", "claimed_by_routes"]

MESH = "mesh"

Object = Mapping[str, Any]


def claimed_by_others(cache: Cache, key: Key, uid: str, hosts: Iterable[str], gateways: Iterable[str]) -> str:
    """Why one of our hosts belongs to another VirtualService; empty when none does.

    Istio gives a host on a gateway whole to the oldest VirtualService that names it and drops the others without a
    word. A host that ours does not name yet is another's even where ours is older: taking it would cut that one off.
    """
    ours = _own(cache.get(VIRTUAL_SERVICE, key), uid)
    wanted = {MESH, *(_full_gateway(name, key.namespace) for name in gateways)}
    for host in hosts:
        for other in cache.claiming(host, key.namespace):
            if key_of(other) == key and (ours is not None or _is_leftover(other, key)):
                continue
            shared = wanted & _gateways(other)
            held = ours is not None and _names(ours, "hosts", host) and shared <= _gateways(ours)
            if shared and _reaches(other, key.namespace) and not (held and _precedes(ours, other)):
                return (
                    f"host {host} on gateway {min(shared)} is claimed by VirtualService {key_of(other)}"
                    f"{_described(other)}; remove the host there or here"
                )
    return ""


def claimed_by_routes(cache: Cache, key: Key, uid: str, hosts: Iterable[str], gateways: Iterable[str]) -> str:
    """Why one of our hosts belongs to another HTTPRoute; empty when none does.

    Routes may share a host, path by path: only one that takes every request of it, and is older or there before we
    ask for the host, is in the way.
    """
    ours = _own(cache.get(HTTP_ROUTE, key), uid)
    wanted_hosts, wanted = set(hosts), {_full_gateway(name, key.namespace) for name in gateways}
    if not wanted_hosts or not wanted:
        return ""
    for place in cache.keys(HTTP_ROUTE):
        other = cache.get(HTTP_ROUTE, place)
        if other is None or is_ours(other, uid) or _is_leftover(other, key):
            continue
        shared = wanted_hosts & set((other.get("spec") or {}).get("hostnames") or ())
        at = wanted & _parents(other)
        held = ours is not None and all(_names(ours, "hostnames", host) for host in shared) and at <= _parents(ours)
        if shared and at and _takes_everything(other) and not (held and _precedes(ours, other)):
            return (
                f"host {min(shared)} on gateway {min(at)} is claimed by HTTPRoute {place}{_described(other)}; "
                "remove the host there or here"
            )
    return ""


def _own(obj: Object | None, uid: str) -> Object | None:
    return obj if obj is not None and is_ours(obj, uid) else None


def _gateways(route: Object) -> set[str]:
    """Gateways of a VirtualService by namespace and name."""
    names = (route.get("spec") or {}).get("gateways") or (MESH,)
    return {_full_gateway(name, key_of(route).namespace) for name in names}


def _parents(route: Object) -> set[str]:
    """Gateways of an HTTPRoute by namespace and name."""
    namespace = key_of(route).namespace
    parents = (route.get("spec") or {}).get("parentRefs") or ()
    return {
        f"{parent.get('namespace') or namespace}/{parent.get('name')}"
        for parent in parents
        if parent.get("kind", "Gateway") == "Gateway"
    }


def _takes_everything(route: Object) -> bool:
    rules: Sequence[Mapping[str, Any]] = (route.get("spec") or {}).get("rules") or ({},)
    return any(_is_open(match) for rule in rules for match in _matches(rule))


def _matches(rule: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return rule.get("matches") or ({},)


def _is_open(match: Mapping[str, Any]) -> bool:
    path = match.get("path") or {}
    whole = path.get("type", "PathPrefix") == "PathPrefix" and path.get("value", "/") == "/"
    return whole and not any(match.get(field) for field in ("headers", "queryParams", "method"))


def _full_gateway(name: str, namespace: str) -> str:
    return name if name == MESH or "/" in name else f"{namespace}/{name}"


def _reaches(route: Object, namespace: str) -> bool:
    """Whether a VirtualService is visible to clients in a namespace."""
    exports = (route.get("spec") or {}).get("exportTo") or ("*",)
    own = key_of(route).namespace
    return any(export in ("*", namespace) or (export == "." and own == namespace) for export in exports)


def _names(route: Object, field: str, host: str) -> bool:
    return host in ((route.get("spec") or {}).get(field) or ())


def _precedes(route: Object | None, other: Object) -> bool:
    return route is not None and _rank(route) < _rank(other)


def _rank(route: Object) -> tuple[float, str, str]:
    """The order of precedence: older first, then by name and namespace."""
    key = key_of(route)
    return created_at(route), key.name, key.namespace


def _is_leftover(route: Object, key: Key) -> bool:
    """Whether a route at our own place is that of a deleted ModelDeployment, which will be collected."""
    owner = controller(route)
    return owner is not None and owner.get("kind") == "ModelDeployment" and owner.get("name") == key.name


def _described(route: Object) -> str:
    owner = controller(route)
    return f" of {owner.get('kind')} {owner.get('name')}" if owner else ""
