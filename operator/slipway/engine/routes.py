"""What the router holds, read back from the VirtualService and the DestinationRule, and who else claims our hosts."""

from collections.abc import Iterable, Mapping
from typing import Any

from slipway.api.observed import TrafficView
from slipway.kube.cache import Cache
from slipway.kube.drift import DriftLedger
from slipway.kube.kinds import DESTINATION_RULE, VIRTUAL_SERVICE
from slipway.kube.metadata import Key, controller, created_at, is_ours, key_of

__all__ = ["claimed_by_others", "traffic_view"]

DEFAULT_ROUTE = "default"
MESH = "mesh"

Object = Mapping[str, Any]


def traffic_view(cache: Cache, ledger: DriftLedger, key: Key, uid: str) -> TrafficView:
    """Weights of the default route and subsets that exist, as far as the objects are ours."""
    route = _own(cache.get(VIRTUAL_SERVICE, key), uid)
    rule = _own(cache.get(DESTINATION_RULE, key), uid)
    drift = ledger.unrepaired([(VIRTUAL_SERVICE, key), (DESTINATION_RULE, key)])
    return TrafficView(
        exists=route is not None,
        weights=_weights(route) if route else {},
        subsets=frozenset(str(subset.get("name")) for subset in _items(rule, "subsets")),
        drifted=drift is not None,
        foreign_manager=drift.manager if drift else "",
    )


def claimed_by_others(cache: Cache, key: Key, uid: str, hosts: Iterable[str], gateways: Iterable[str]) -> str:
    """Why one of our hosts belongs to somebody else; empty when none does.

    Istio gives a host on a gateway whole to the oldest VirtualService that names it and drops the others without a
    word. While we have none, every other one is older than ours would be.
    """
    ours = _own(cache.get(VIRTUAL_SERVICE, key), uid)
    wanted = {MESH, *(_full_gateway(name, key.namespace) for name in gateways)}
    for host in hosts:
        for other in cache.claiming(host, key.namespace):
            if key_of(other) == key and (ours is not None or _is_leftover(other, key)):
                continue
            shared = wanted & _gateways(other)
            if shared and _reaches(other, key.namespace) and (ours is None or _rank(other) < _rank(ours)):
                return (
                    f"host {host} on gateway {min(shared)} is claimed by VirtualService {key_of(other)}"
                    f"{_described(other)}; remove the host there or here"
                )
    return ""


def _own(obj: Object | None, uid: str) -> Object | None:
    return obj if obj is not None and is_ours(obj, uid) else None


def _items(obj: Object | None, name: str) -> list[Mapping[str, Any]]:
    return list((obj or {}).get("spec", {}).get(name) or ())


def _weights(route: Object) -> dict[str, int]:
    default = next((item for item in _items(route, "http") if item.get("name") == DEFAULT_ROUTE), {})
    weights: dict[str, int] = {}
    destinations = default.get("route") or ()
    for entry in destinations:
        subset = str((entry.get("destination") or {}).get("subset") or "")
        # A lone destination takes everything, whatever its weight says; among several one without weight gets nothing.
        weight = 100 if len(destinations) == 1 else int(entry.get("weight") or 0)
        weights[subset] = weights.get(subset, 0) + weight
    return weights


def _gateways(route: Object) -> set[str]:
    """Gateways of a VirtualService by namespace and name."""
    names = (route.get("spec") or {}).get("gateways") or (MESH,)
    return {_full_gateway(name, key_of(route).namespace) for name in names}


def _full_gateway(name: str, namespace: str) -> str:
    return name if name == MESH or "/" in name else f"{namespace}/{name}"


def _reaches(route: Object, namespace: str) -> bool:
    """Whether a VirtualService is visible to clients in a namespace."""
    exports = (route.get("spec") or {}).get("exportTo") or ("*",)
    own = key_of(route).namespace
    return any(export in ("*", namespace) or (export == "." and own == namespace) for export in exports)


def _rank(route: Object) -> tuple[float, str, str]:
    """Istio's order of precedence: older first, then by name and namespace."""
    key = key_of(route)
    return created_at(route), key.name, key.namespace


def _is_leftover(route: Object, key: Key) -> bool:
    """Whether a VirtualService at our own place is that of a deleted ModelDeployment, which will be collected."""
    owner = controller(route)
    return owner is not None and owner.get("kind") == "ModelDeployment" and owner.get("name") == key.name


def _described(route: Object) -> str:
    owner = controller(route)
    return f" of {owner.get('kind')} {owner.get('name')}" if owner else ""
