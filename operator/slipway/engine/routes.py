"""What the router holds, read back from the objects that a provider reads.

Whatever somebody wrote there, the weights read sum to at most 100: a status with more would be refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from slipway.api.observed import TrafficView
from slipway.api.traffic import Provider
from slipway.kube.cache import Cache
from slipway.kube.drift import DriftLedger, Place
from slipway.kube.kinds import (
    AUTHORIZATION_POLICY,
    CONTROLLER_REVISION,
    DEPLOYMENT,
    DESTINATION_RULE,
    ENVOY_FILTER,
    HTTP_ROUTE,
    MESH,
    REQUEST_AUTHENTICATION,
    SERVICE,
    VIRTUAL_SERVICE,
    Kind,
)
from slipway.kube.metadata import Key, is_ours, key_of, label
from slipway.resources.gateway_api import GRPC_SUFFIX
from slipway.resources.identity import REVISION_LABEL
from slipway.resources.routing import DEFAULT_ROUTE

__all__ = ["missing_kinds", "provider_named", "traffic_view"]

_LEADING = frozenset(
    {
        SERVICE,
        DESTINATION_RULE,
        VIRTUAL_SERVICE,
        HTTP_ROUTE,
        REQUEST_AUTHENTICATION,
        AUTHORIZATION_POLICY,
        ENVOY_FILTER,
    }
)
"""Kinds that say where requests go, and which of them."""

Object = Mapping[str, Any]


def provider_named(spec: Mapping[str, Any]) -> Provider:
    """The provider of a spec that may not be valid; Istio where it names none that is known."""
    named = _part(spec, "traffic").get("provider")
    return Provider(named) if named in {provider.value for provider in Provider} else Provider.ISTIO


def missing_kinds(cache: Cache, spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the kinds that a spec's traffic cannot do without and that the API server lacks."""
    traffic = _part(spec, "traffic")
    needed = list(_READERS[provider_named(spec)].needed)
    if _part(_part(traffic, "auth"), "jwt").get("issuer"):
        needed += [REQUEST_AUTHENTICATION, AUTHORIZATION_POLICY]
    if _part(_part(traffic, "resilience"), "rateLimit").get("requestsPerSecond"):
        needed.append(ENVOY_FILTER)
    return tuple(kind.name for kind in needed if not cache.served(kind))


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A block of a spec that may not be valid; empty where it is none."""
    found = whole.get(name)
    return found if isinstance(found, Mapping) else {}


def traffic_view(
    cache: Cache,
    ledger: DriftLedger,
    key: Key,
    uid: str,
    provider: Provider,
    refused: Mapping[Place, str] = MappingProxyType({}),
) -> TrafficView:
    """Weights of the default route and subsets that exist, as far as the objects are ours.

    ``refused`` are objects that the API server, or a webhook of the mesh, would not take, and why.
    """
    reader = _READERS[provider]
    route = _own(cache.get(reader.route, key), uid)
    drift = ledger.unrepaired(_written(key))
    return TrafficView(
        exists=route is not None,
        weights=reader.weights(route) if route else {},
        subsets=frozenset(reader.subsets(cache, key, uid)),
        drifted=drift is not None,
        foreign_manager=drift.manager if drift else "",
        refusal=next((text for (kind, _), text in refused.items() if kind in _LEADING), "")
        or (_refusal(route) if route and provider is Provider.GATEWAY_API else ""),
        leaving=_leaving(cache, key, uid),
    )


def _leaving(cache: Cache, key: Key, uid: str) -> str:
    """The first object that has to be gone, and made anew, before anything after it is written; empty without one."""
    live = [(CONTROLLER_REVISION, key_of(obj)) for obj in cache.owned(DEPLOYMENT, key)]
    for kind, place in (*live, *_written(key)):
        obj = _own(cache.get(kind, place), uid)
        if obj is not None and obj["metadata"].get("deletionTimestamp"):
            kept = ", ".join(obj["metadata"].get("finalizers") or ())
            return f"{kind.name} {place.name} is being deleted" + (f"; finalizers keep it: {kept}" if kept else "")
    return ""


def _written(key: Key) -> Iterable[tuple[Kind, Key]]:
    """Every object that may lead traffic."""
    yield from ((kind, key) for kind in (VIRTUAL_SERVICE, DESTINATION_RULE, HTTP_ROUTE, SERVICE))
    yield HTTP_ROUTE, Key(key.namespace, f"{key.name}{GRPC_SUFFIX}")


@dataclass(frozen=True, slots=True)
class _Reader:
    """How one provider is read back."""

    needed: Sequence[Kind]
    route: Kind
    """Kind of the object, named as the ModelDeployment, that holds the weights."""
    weights: Callable[[Object], dict[str, int]]
    subsets: Callable[[Cache, Key, str], Iterable[str]]


def _own(obj: Object | None, uid: str) -> Object | None:
    return obj if obj is not None and is_ours(obj, uid) else None


def _items(obj: Object | None, name: str) -> list[Mapping[str, Any]]:
    return list((obj or {}).get("spec", {}).get(name) or ())


def _istio_weights(route: Object) -> dict[str, int]:
    default = next((item for item in _items(route, "http") if item.get("name") == DEFAULT_ROUTE), {})
    destinations = default.get("route") or ()
    # A lone destination takes everything, whatever its weight says; among several one without weight gets nothing.
    lone = len(destinations) == 1
    named = [
        (str((entry.get("destination") or {}).get("subset") or ""), 1 if lone else entry.get("weight") or 0)
        for entry in destinations
    ]
    return _shares(named)


def _http_route_weights(route: Object) -> dict[str, int]:
    """Weights of the rule that takes everything; a backend without a weight weighs 1."""
    default = next((rule for rule in _items(route, "rules") if not _has_conditions(rule)), {})
    return _shares([(str(ref.get("name")), ref.get("weight", 1)) for ref in default.get("backendRefs") or ()])


def _has_conditions(rule: Mapping[str, Any]) -> bool:
    matches: Sequence[Mapping[str, Any]] = rule.get("matches") or ({},)
    return all(any(match.get(field) for field in ("headers", "queryParams", "method")) for match in matches)


def _refusal(route: Object) -> str:
    """What a controller of Gateway API says against the newest generation of a route; empty while none says a thing."""
    generation = route["metadata"].get("generation", 0)
    for parent in (route.get("status") or {}).get("parents") or ():
        for condition in parent.get("conditions") or ():
            judged = condition.get("type") in {"Accepted", "ResolvedRefs"} and condition.get("status") == "False"
            if judged and condition.get("observedGeneration", generation) == generation:
                name = (parent.get("parentRef") or {}).get("name", "")
                words = f"{name}: {condition.get('reason', '')}: {condition.get('message', '')}"
                return f"a gateway does not take the route: {words}"
    return ""


def _service_weights(service: Object) -> dict[str, int]:
    selected = ((service.get("spec") or {}).get("selector") or {}).get(REVISION_LABEL)
    return {selected: 100} if selected else {}


def _shares(named: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """Weights by revision in per cent; those that sum to something else than 100 are proportions, rounded down."""
    weights: dict[str, int] = {}
    for name, weight in named:
        weights[name] = weights.get(name, 0) + max(0, int(weight))
    total = sum(weights.values())
    return {name: weight * 100 // total for name, weight in weights.items()} if total else weights


def _rule_subsets(cache: Cache, key: Key, uid: str) -> Iterable[str]:
    rule = _own(cache.get(DESTINATION_RULE, key), uid)
    return [str(subset.get("name")) for subset in _items(rule, "subsets")]


def _service_subsets(cache: Cache, key: Key, uid: str) -> Iterable[str]:
    """Revisions that have a Service of their own."""
    owned = [obj for obj in cache.owned(SERVICE, key) if is_ours(obj, uid)]
    return [key_of(obj).name for obj in owned if label(obj, REVISION_LABEL) == key_of(obj).name]


_READERS: Mapping[Provider, _Reader] = {
    Provider.ISTIO: _Reader(MESH, VIRTUAL_SERVICE, _istio_weights, _rule_subsets),
    Provider.GATEWAY_API: _Reader((HTTP_ROUTE,), HTTP_ROUTE, _http_route_weights, _service_subsets),
    Provider.NONE: _Reader((), SERVICE, _service_weights, _service_subsets),
}
