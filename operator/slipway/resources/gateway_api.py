"""Gateway API as the provider: HTTPRoutes over one Service per revision, since it knows no subsets.

A route hangs on the gateways that are named and, for clients in a mesh that implements GAMMA, on the Service itself.
What the API would otherwise default is written out, weights above all: a backend without one weighs 1, not 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import VersionStatus
from slipway.resources.affinity import set_cookie
from slipway.resources.durations import compound_duration
from slipway.resources.identity import Identity, metadata
from slipway.resources.routing import SHADOW_HEADER, VERSION_HEADER, Route, Target, routes
from slipway.resources.services import SERVICE_GRPC_PORT, SERVICE_HTTP_PORT

__all__ = ["GRPC_SUFFIX", "http_routes"]

API_VERSION = "gateway.networking.k8s.io/v1"
MESH_GATEWAY = "mesh"
"""Istio's word for clients in the mesh, who are served anyway."""
GRPC_SUFFIX = "-grpc"
GRPC_PATHS = ("/inference.GRPCInferenceService", "/grpc.health.v1.Health")
"""What gRPC clients ask for; at a gateway both protocols may come in at one listener, and only the path tells them."""

_ANY_PATH = {"type": "PathPrefix", "value": "/"}
_PATH_TYPES = {"exact": "Exact", "prefix": "PathPrefix", "regex": "RegularExpression"}
_VALUE_TYPES = {"exact": "Exact", "regex": "RegularExpression"}


def http_routes(identity: Identity, spec: ModelDeploymentSpec, routed: Sequence[VersionStatus]) -> list[dict[str, Any]]:
    """One HTTPRoute per port; ``routed`` are the entries with a subset (not none)."""
    planned = routes(spec, routed)
    anywhere = [_ANY_PATH]
    grpc = [{"type": "PathPrefix", "value": path} for path in GRPC_PATHS]
    return [
        _http_route(identity, f"{identity.name}{GRPC_SUFFIX}", SERVICE_GRPC_PORT, spec, planned, grpc),
        _http_route(identity, identity.name, SERVICE_HTTP_PORT, spec, planned, anywhere),
    ]


def _http_route(
    identity: Identity,
    name: str,
    port: int,
    spec: ModelDeploymentSpec,
    planned: Sequence[Route],
    places: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    written: dict[str, Any] = {
        "parentRefs": [
            *(_gateway(name, identity.namespace) for name in spec.traffic.gateways if name != MESH_GATEWAY),
            {"group": "", "kind": "Service", "name": identity.name, "port": port},
        ],
        "rules": [_rule(route, matches, port, spec) for route in planned if (matches := _matches(route, places))],
    }
    if spec.traffic.hosts:
        written["hostnames"] = list(spec.traffic.hosts)
    return {"apiVersion": API_VERSION, "kind": "HTTPRoute", "metadata": metadata(identity, name), "spec": written}


def _gateway(name: str, namespace: str) -> dict[str, Any]:
    place, _, plain = name.rpartition("/")
    return {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "namespace": place or namespace,
        "name": plain,
    }


def _matches(route: Route, places: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The route's conditions in each of the places; one that names a place of its own holds within these alone."""
    written = [_match(match) for match in route.matches or ({},)]
    found: list[dict[str, Any]] = []
    for place in places:
        for match in written:
            own = match.get("path", place)
            if own == place or str(own["value"]).startswith(place["value"]):
                found.append({**match, "path": own})
    return found


def _rule(route: Route, matches: list[dict[str, Any]], port: int, spec: ModelDeploymentSpec) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "matches": matches,
        "backendRefs": [_backend(target, port, spec, draws=route.draws) for target in route.targets],
        "timeouts": {"request": compound_duration(spec.traffic.resilience.timeout)},
    }
    if route.copies is not None:
        copied = {"group": "", "kind": "Service", "name": route.copies.entry.revision, "port": port}
        mirror = {"backendRef": copied, "percent": route.copies.percent}
        rule["filters"] = [{"type": "RequestMirror", "requestMirror": mirror}]
    return rule


def _match(match: Mapping[str, Any]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if match.get("uri"):
        [(kind, value)] = match["uri"].items()
        written["path"] = {"type": _PATH_TYPES[kind], "value": value}
    if match.get("method"):
        written["method"] = match["method"]["exact"]
    for field in ("headers", "queryParams"):
        if match.get(field):
            written[field] = [_value(name, condition) for name, condition in match[field].items()]
    return written


def _value(name: str, condition: Mapping[str, str]) -> dict[str, Any]:
    [(kind, value)] = condition.items()
    return {"type": _VALUE_TYPES[kind], "name": name, "value": value}


def _backend(target: Target, port: int, spec: ModelDeploymentSpec, *, draws: bool) -> dict[str, Any]:
    changes: dict[str, Any] = {"set": [{"name": VERSION_HEADER, "value": target.entry.name}]}
    if draws:
        cookie = set_cookie(spec.traffic.session_affinity, target.entry.revision)
        changes["add"] = [{"name": "set-cookie", "value": cookie}]
    return {
        "group": "",
        "kind": "Service",
        "name": target.entry.revision,
        "port": port,
        "weight": target.weight,
        "filters": [
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": [SHADOW_HEADER]}},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": changes},
        ],
    }
