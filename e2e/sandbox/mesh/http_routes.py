"""Gateway API's HTTPRoutes, said as Istio's routes: which of them are attached where, and in what order they match."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from e2e.sandbox.mesh.names import Json, object_key, service_host
from e2e.sandbox.mesh.routes import RouteScope, routes_for

_STRINGS = {"Exact": "exact", "RegularExpression": "regex"}
_PATHS = {"Exact": "exact", "RegularExpression": "regex", "PathPrefix": "pathPrefix"}
_FILTERS = {"RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror"}
ANY_HOST = "*"


@dataclass
class AttachedRoutes:
    """Single conditions with their targets by the place they hold at, in the order they were read."""

    at_gateways: dict[str, list["_Entry"]] = field(default_factory=lambda: defaultdict(list))
    """By host name."""
    at_services: dict[str, list["_Entry"]] = field(default_factory=lambda: defaultdict(list))
    """By full host name of the Service."""

    def gateway_routes(self, host: str, scope: RouteScope) -> list[Json]:
        """Envoy routes of a host name at the gateway."""
        return _translated(self.at_gateways[host], scope)

    def service_routes(self, host: str, scope: RouteScope) -> list[Json]:
        """Envoy routes of a port of a Service for clients in the mesh; none when nothing is attached to it."""
        entries = self.at_services.get(host, [])
        return _translated([entry for entry in entries if entry.port in {0, scope.listener_port}], scope)


@dataclass(frozen=True)
class _Entry:
    rank: tuple[Any, ...]
    route: Json
    http: Json
    port: int = 0
    """Port of the Service that it is attached to; 0 is every port."""


def objection(route: Json) -> str | None:
    """Why the sandbox's mesh takes no part in an HTTPRoute, if so."""
    for rule in route.get("spec", {}).get("rules") or []:
        filters = [*(rule.get("filters") or []), *(f for ref in rule.get("backendRefs") or [] for f in _of(ref))]
        unknown = sorted({item.get("type", "") for item in filters} - _FILTERS)
        if unknown:
            return f"the sandbox does not know the filter {unknown[0]}"
        if any(not ref.get("port") for ref in rule.get("backendRefs") or []):
            return "a backendRef to a Service needs a port"
    return None


def attached(http_routes: Iterable[Json]) -> AttachedRoutes:
    """Sort the rules of all routes to the gateways' hosts and Services they name as parents."""
    result = AttachedRoutes()
    for route in http_routes:
        namespace, _ = object_key(route)
        spec = route.get("spec", {})
        entries = list(_entries(route))
        for parent in spec.get("parentRefs") or []:
            if parent.get("kind", "Gateway") == "Gateway":
                for host in spec.get("hostnames") or [ANY_HOST]:
                    result.at_gateways[host] += entries
            elif parent["kind"] == "Service":
                host = service_host(parent["name"], parent.get("namespace") or namespace)
                port = parent.get("port", 0)
                result.at_services[host] += [_Entry(item.rank, item.route, item.http, port) for item in entries]
    return result


def _entries(route: Json) -> Iterator[_Entry]:
    """One entry per condition, with the rank that Gateway API gives it: the more it says, the earlier it is tried."""
    namespace, name = object_key(route)
    created = route["metadata"].get("creationTimestamp") or ""
    for index, rule in enumerate(route.get("spec", {}).get("rules") or [{}]):
        http = _istio_route(rule, namespace)
        for match in rule.get("matches") or [{}]:
            path = match.get("path") or {}
            value = path.get("value", "/")
            specificity = (
                path.get("type") != "Exact",
                -len(value),
                not match.get("method"),
                -len(match.get("headers") or []),
                -len(match.get("queryParams") or []),
            )
            condition = {**http, "match": [_istio_match(match)]}
            yield _Entry((*specificity, created, namespace, name, index), route, condition)


def _translated(entries: Iterable[_Entry], scope: RouteScope) -> list[Json]:
    ordered = sorted(entries, key=lambda entry: entry.rank)
    return [route for entry in ordered for route in routes_for(entry.route, [entry.http], scope)]


def _istio_match(match: Json) -> Json:
    path = match.get("path") or {}
    value = path.get("value", "/")
    said: Json = {"uri": {_PATHS[path.get("type", "PathPrefix")]: value}}
    if match.get("method"):
        said["method"] = {"exact": match["method"]}
    for part in ("headers", "queryParams"):
        if match.get(part):
            said[part] = {item["name"]: {_STRINGS[item.get("type", "Exact")]: item["value"]} for item in match[part]}
    return said


def _istio_route(rule: Json, namespace: str) -> Json:
    refs = rule.get("backendRefs") or []
    http: Json = {"name": rule.get("name", ""), "headers": _headers(rule.get("filters") or [])}
    if not refs:
        return {**http, "directResponse": {"status": 500}}
    http["route"] = [
        {
            "destination": _destination(ref, namespace),
            "weight": ref.get("weight", 1),
            "headers": _headers(_of(ref)),
        }
        for ref in refs
    ]
    if rule.get("timeouts", {}).get("request"):
        http["timeout"] = rule["timeouts"]["request"]
    copies = [item["requestMirror"] for item in rule.get("filters") or [] if item["type"] == "RequestMirror"]
    if copies:
        http["mirrors"] = [
            {
                "destination": _destination(item["backendRef"], namespace),
                "percentage": {"value": item.get("percent", 100)},
            }
            for item in copies
        ]
    return http


def _of(ref: Json) -> list[Json]:
    return list(ref.get("filters") or [])


def _destination(ref: Json, namespace: str) -> Json:
    return {"host": service_host(ref["name"], ref.get("namespace") or namespace), "port": {"number": ref["port"]}}


def _headers(filters: list[Json]) -> Json:
    headers: Json = {}
    for direction in ("request", "response"):
        for item in filters:
            changes = item.get(f"{direction}HeaderModifier")
            if changes:
                headers[direction] = {
                    "set": {entry["name"]: entry["value"] for entry in changes.get("set") or []},
                    "add": {entry["name"]: entry["value"] for entry in changes.get("add") or []},
                    "remove": list(changes.get("remove") or []),
                }
    return headers
