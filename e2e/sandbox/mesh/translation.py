"""The translation istiod does: Kubernetes and Istio objects in, Envoy's clusters, endpoints and routes out. Pure."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from e2e.sandbox.mesh.authorization import objection as authorization_objection
from e2e.sandbox.mesh.clusters import clusters_of
from e2e.sandbox.mesh.http_routes import objection as http_route_objection
from e2e.sandbox.mesh.names import Json, object_key, seconds
from e2e.sandbox.mesh.policies import PolicyObjects, enforced, jwt_filter
from e2e.sandbox.mesh.policies import objection as filter_objection
from e2e.sandbox.mesh.registry import read_services
from e2e.sandbox.mesh.rules import Rules
from e2e.sandbox.mesh.virtual_hosts import virtual_hosts

DEFAULT_GATEWAY_PORT = 8000


@dataclass(frozen=True)
class MeshObjects:
    """The objects a translation reads, as plain dicts. Pods are needed for their labels only."""

    virtual_services: tuple[Json, ...] = ()
    destination_rules: tuple[Json, ...] = ()
    services: tuple[Json, ...] = ()
    endpoint_slices: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    http_routes: tuple[Json, ...] = ()
    policies: PolicyObjects = field(default_factory=PolicyObjects)


@dataclass(frozen=True)
class Rejection:
    """An object that istiod's admission would refuse or that the sandbox cannot do; it takes no part."""

    namespace: str
    name: str
    reason: str


@dataclass(frozen=True)
class MeshConfig:
    """What Envoy is to be told."""

    clusters: tuple[Json, ...] = ()
    endpoints: dict[str, Json] = field(default_factory=dict)
    virtual_hosts: tuple[Json, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    """The resourceVersion of every route object that took part, by namespace/name."""
    jwt_filter: Json = field(default_factory=lambda: jwt_filter(PolicyObjects()))


def translate(objects: MeshObjects, gateway_port: int = DEFAULT_GATEWAY_PORT) -> MeshConfig:
    """Translate the objects; `gateway_port` is the number the gateway's listener goes by in names and port rules."""
    services = read_services(objects.services, objects.endpoint_slices, objects.pods)
    rules = Rules(objects.destination_rules)
    rejections: list[Rejection] = []
    virtual_services = _admit(objects.virtual_services, _objection, rejections)
    http_routes = _admit(objects.http_routes, http_route_objection, rejections)
    policies = PolicyObjects(
        objects.policies.authentications,
        tuple(_admit(objects.policies.authorizations, authorization_objection, rejections)),
        tuple(_admit(objects.policies.envoy_filters, filter_objection, rejections)),
        objects.policies.keys,
    )
    clusters, endpoints = [], {}
    for service in services.values():
        for cluster, assignment in clusters_of(service, rules):
            clusters.append(cluster)
            endpoints[cluster["name"]] = assignment
    routes = [*http_routes, *virtual_services]
    sources = {"/".join(object_key(item)): item["metadata"].get("resourceVersion", "") for item in routes}
    hosts = virtual_hosts(virtual_services, http_routes, services, rules, gateway_port)
    return MeshConfig(
        clusters=tuple(clusters),
        endpoints=endpoints,
        virtual_hosts=tuple(enforced(hosts, services, policies)),
        rejections=tuple(rejections),
        sources=sources,
        jwt_filter=jwt_filter(policies),
    )


def _admit(items: Iterable[Json], objection: Callable[[Json], str | None], rejections: list[Rejection]) -> list[Json]:
    accepted = []
    for item in items:
        reason = objection(item)
        if reason is None:
            accepted.append(item)
        else:
            namespace, name = object_key(item)
            rejections.append(Rejection(namespace, name, reason))
    return accepted


def _objection(virtual_service: Json) -> str | None:
    """Why a VirtualService is refused: istiod's webhook says the same before it is stored."""
    for route in virtual_service.get("spec", {}).get("http") or []:
        destinations = route.get("route") or []
        kinds = [bool(destinations)] + [bool(route.get(kind)) for kind in ("redirect", "directResponse", "delegate")]
        if sum(kinds) != 1:
            return "a route must have exactly one of route, redirect, directResponse and delegate"
        weights = [item.get("weight", 0) for item in destinations]
        if any(weight < 0 for weight in weights):
            return "weight must not be negative"
        if len(weights) > 1 and sum(weights) == 0:
            return "total destination weight = 0"
        objection = _bad_duration(route) or _bad_regex(route)
        if objection:
            return objection
    return None


def _bad_duration(route: Json) -> str | None:
    delay = (route.get("fault") or {}).get("delay") or {}
    for value in (route.get("timeout"), (route.get("retries") or {}).get("perTryTimeout"), delay.get("fixedDelay")):
        try:
            if value is not None:
                seconds(value)
        except ValueError as error:
            return str(error)
    return None


def _bad_regex(route: Json) -> str | None:
    for match in route.get("match") or []:
        values = [match.get(name) or {} for name in ("uri", "method", "authority", "scheme")]
        for group in ("headers", "withoutHeaders", "queryParams"):
            values += [value or {} for value in (match.get(group) or {}).values()]
        for value in values:
            try:
                re.compile(value.get("regex", ""))
            except re.error as error:
                return f"not a regular expression: {value['regex']!r} ({error})"
    return None
