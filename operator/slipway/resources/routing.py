"""The objects that move traffic: DestinationRule and VirtualService.

Everything that Istio would otherwise guess is written out: ports (a destination without one takes the listener's),
weights (one without gets nothing), retries (two by default).
"""

from collections.abc import Sequence
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import VersionStatus
from slipway.api.traffic import OutlierDetection, Resilience
from slipway.resources.durations import plain_duration
from slipway.resources.identity import Identity, RenderOptions, metadata, selector_labels, service_host
from slipway.resources.shares import pinned, weights
from slipway.resources.workloads import SERVICE_GRPC_PORT, SERVICE_HTTP_PORT

__all__ = ["DEFAULT_ROUTE", "destination_rule", "virtual_service"]

API_VERSION = "networking.istio.io/v1"
MESH_GATEWAY = "mesh"
VERSION_HEADER = "x-model-version"
"""Header by which every answer tells its version."""
DEFAULT_ROUTE = "default"
"""Name of the weighted route that requests without a pin take."""


def destination_rule(
    identity: Identity, spec: ModelDeploymentSpec, routed: Sequence[VersionStatus], options: RenderOptions
) -> dict[str, Any]:
    """The rule with one immutable subset per routed revision."""
    policy: dict[str, Any] = {
        "loadBalancer": {"simple": "LEAST_REQUEST"},
        # Far above what pods take (they answer 429 themselves), so that no request dies unseen in a proxy.
        "connectionPool": {
            "tcp": {"connectTimeout": "2s", "maxConnections": 10_000},
            "http": {"http1MaxPendingRequests": 10_000, "http2MaxRequests": 10_000},
        },
    }
    ejection = spec.traffic.resilience.outlier_detection
    if ejection.consecutive_errors:
        policy["outlierDetection"] = _outlier_detection(ejection)
    return {
        "apiVersion": API_VERSION,
        "kind": "DestinationRule",
        "metadata": metadata(identity, identity.name),
        "spec": {
            "host": service_host(identity, options),
            "trafficPolicy": policy,
            "subsets": [
                {"name": entry.revision, "labels": selector_labels(identity, entry.revision)} for entry in routed
            ],
        },
    }


def _outlier_detection(ejection: OutlierDetection) -> dict[str, Any]:
    """Ejection that never empties a subset.

    A candidate of one pod that only fails must go on getting its share: if its pod were ejected, the proxies would
    answer 503 themselves and the comparison would never see a bad request.
    """
    return {
        "consecutive5xxErrors": ejection.consecutive_errors,
        "interval": plain_duration(ejection.interval),
        "baseEjectionTime": plain_duration(ejection.ejection_time),
        "maxEjectionPercent": 50,
        "minHealthPercent": 50,
    }


def virtual_service(
    identity: Identity, spec: ModelDeploymentSpec, routed: Sequence[VersionStatus], options: RenderOptions
) -> dict[str, Any]:
    """The routes: gRPC before HTTP, pins before the weighted default, which comes last."""
    host = service_host(identity, options)
    return {
        "apiVersion": API_VERSION,
        "kind": "VirtualService",
        "metadata": metadata(identity, identity.name),
        "spec": {
            "hosts": list(dict.fromkeys((host, *spec.traffic.hosts))),
            "gateways": list(dict.fromkeys((MESH_GATEWAY, *spec.traffic.gateways))),
            "http": [
                # The routes of a VirtualService hold for every port of the Service: without a route of its own, a
                # request to the gRPC port would end at the HTTP port.
                *_routes(host, SERVICE_GRPC_PORT, spec, routed, prefix="grpc-", match={"port": SERVICE_GRPC_PORT}),
                *_routes(host, SERVICE_HTTP_PORT, spec, routed, prefix="", match={}),
            ],
        },
    }


def _routes(
    host: str,
    port: int,
    spec: ModelDeploymentSpec,
    routed: Sequence[VersionStatus],
    *,
    prefix: str,
    match: dict[str, Any],
) -> list[dict[str, Any]]:
    """Pins and the default route to one port of the Service, each with the conditions of ``match``."""
    common = {
        "timeout": plain_duration(spec.traffic.resilience.timeout),
        "retries": _retries(spec.traffic.resilience),
    }
    routes: list[dict[str, Any]] = []
    if spec.traffic.version_header:
        routes += [
            {
                "name": f"{prefix}pin-{entry.name}",
                "match": [{**match, "headers": {spec.traffic.version_header: {"exact": entry.name}}}],
                "route": [_destination(host, port, entry, 100)],
                **common,
            }
            for entry in pinned(routed)
        ]
    shares = weights(routed)
    default: dict[str, Any] = {
        "name": f"{prefix}{DEFAULT_ROUTE}",
        "route": [_destination(host, port, entry, shares[entry.revision]) for entry in routed],
        **common,
    }
    if match:
        default["match"] = [match]
    return [*routes, default]


def _destination(host: str, port: int, entry: VersionStatus, weight: int) -> dict[str, Any]:
    return {
        "destination": {"host": host, "subset": entry.revision, "port": {"number": port}},
        "weight": weight,
        "headers": {"response": {"set": {VERSION_HEADER: entry.name}}},
    }


def _retries(resilience: Resilience) -> dict[str, Any]:
    retries = resilience.retries
    if retries.attempts == 0:
        return {"attempts": 0}
    return {
        "attempts": retries.attempts,
        "perTryTimeout": plain_duration(retries.per_try_timeout),
        "retryOn": ",".join(retries.on),
    }
