"""The translation istiod does: Kubernetes and Istio objects in, Envoy's clusters, endpoints and routes out. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from e2e.sandbox.mesh.clusters import clusters_of
from e2e.sandbox.mesh.names import Json, object_key, seconds
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


@dataclass(frozen=True)
class Rejection:
    """A VirtualService that istiod's admission would refuse, with the reason; it takes no part."""

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
    """The resourceVersion of every VirtualService that took part, by namespace/name."""


def translate(objects: MeshObjects, gateway_port: int = DEFAULT_GATEWAY_PORT) -> MeshConfig:
    """Translate the objects; `gateway_port` is the number the gateway's listener goes by in names and port rules."""
    services = read_services(objects.services, objects.endpoint_slices, objects.pods)
    rules = Rules(objects.destination_rules)
    accepted, rejections = _admit(objects.virtual_services)
    clusters, endpoints = [], {}
    for service in services.values():
        for cluster, assignment in clusters_of(service, rules):
            clusters.append(cluster)
            endpoints[cluster["name"]] = assignment
    sources = {"/".join(object_key(item)): item["metadata"].get("resourceVersion", "") for item in accepted}
    hosts = virtual_hosts(accepted, services, rules, gateway_port)
    return MeshConfig(tuple(clusters), endpoints, tuple(hosts), tuple(rejections), sources)


def _admit(virtual_services: Iterable[Json]) -> tuple[list[Json], list[Rejection]]:
    accepted, rejections = [], []
    for item in virtual_services:
        reason = _objection(item)
        if reason is None:
            accepted.append(item)
        else:
            namespace, name = object_key(item)
            rejections.append(Rejection(namespace, name, reason))
    return accepted, rejections


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
