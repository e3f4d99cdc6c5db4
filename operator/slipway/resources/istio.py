"""Istio as the provider: DestinationRule and VirtualService.

Everything that Istio would otherwise guess is written out: ports (a destination without one takes the listener's),
weights (one without gets nothing), retries (two by default).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import VersionStatus
from slipway.api.traffic import OutlierDetection, Resilience, SessionAffinity
from slipway.resources.affinity import set_cookie
from slipway.resources.durations import plain_duration
from slipway.resources.identity import Identity, RenderOptions, metadata, selector_labels, service_host
from slipway.resources.routing import SHADOW_HEADER, VERSION_HEADER, Route, Target, routes
from slipway.resources.services import SERVICE_GRPC_PORT, SERVICE_HTTP_PORT

__all__ = ["destination_rule", "virtual_service"]

API_VERSION = "networking.istio.io/v1"
MESH_GATEWAY = "mesh"
SHORTEST_DURATION = 0.001
"""Seconds; Istio's schema refuses less. A limit of 0 is no limit, which Istio means by leaving it out."""


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
        # With outlier detection Istio sends a client's requests to the pods of its own zone alone while they are
        # healthy: one gateway would keep a single pod busy, and replicas made for all of the load would idle.
        policy["loadBalancer"]["localityLbSetting"] = {"enabled": False}
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
    """The routes, gRPC before HTTP; a delegate names neither hosts nor gateways, which are its root's."""
    host = service_host(identity, options)
    planned = routes(spec, routed)
    written: dict[str, Any] = {}
    if not spec.traffic.virtual_service.delegate:
        written["hosts"] = list(dict.fromkeys((host, *spec.traffic.hosts)))
        written["gateways"] = list(dict.fromkeys((MESH_GATEWAY, *spec.traffic.gateways)))
    # The routes of a VirtualService hold for every port of the Service: without a route of its own, a request to the
    # gRPC port would end at the HTTP port.
    grpc = _Port(host, SERVICE_GRPC_PORT, spec, prefix="grpc-", match={"port": SERVICE_GRPC_PORT})
    http = _Port(host, SERVICE_HTTP_PORT, spec, prefix="", match={})
    written["http"] = [item for port in (grpc, http) for route in planned if (item := port.written(route))]
    return {
        "apiVersion": API_VERSION,
        "kind": "VirtualService",
        "metadata": metadata(identity, identity.name),
        "spec": written,
    }


class _Port:
    """Routes to one port of the Service, each under the further condition ``match``."""

    def __init__(
        self, host: str, number: int, spec: ModelDeploymentSpec, *, prefix: str, match: dict[str, Any]
    ) -> None:
        self._host = host
        self._number = number
        self._traffic = spec.traffic
        self._prefix = prefix
        self._match = match

    def written(self, route: Route) -> dict[str, Any] | None:
        """The route as Istio reads it; None where it holds for the other port alone."""
        resilience = self._traffic.resilience
        item: dict[str, Any] = {"name": f"{self._prefix}{route.name}"}
        matches = [{**match, **self._match} for match in route.matches or ({},) if self._concerns(match)]
        if not matches:
            return None
        if any(matches):
            item["match"] = matches
        affinity = self._traffic.session_affinity if route.draws else None
        item["route"] = [self._destination(target, affinity) for target in route.targets]
        if route.copies is not None:
            # The list form, mirrors, is unknown to older releases.
            item["mirror"] = self._place(route.copies.entry)
            item["mirrorPercentage"] = {"value": route.copies.percent}
        if resilience.timeout.seconds >= SHORTEST_DURATION:
            item["timeout"] = plain_duration(resilience.timeout)
        return item | {"retries": _retries(resilience)}

    def _concerns(self, match: Mapping[str, Any]) -> bool:
        """Whether a condition can hold here: one may name a port, ours or that of a gateway."""
        for_grpc = match.get("port") == SERVICE_GRPC_PORT
        return for_grpc or "port" not in match if self._number == SERVICE_GRPC_PORT else not for_grpc

    def _destination(self, target: Target, affinity: SessionAffinity | None) -> dict[str, Any]:
        response: dict[str, Any] = {"set": {VERSION_HEADER: target.entry.name}}
        if affinity is not None:
            response["add"] = {"set-cookie": set_cookie(affinity, target.entry.revision)}
        return {
            "destination": self._place(target.entry),
            "weight": target.weight,
            "headers": {"request": {"remove": [SHADOW_HEADER]}, "response": response},
        }

    def _place(self, entry: VersionStatus) -> dict[str, Any]:
        return {"host": self._host, "subset": entry.revision, "port": {"number": self._number}}


def _retries(resilience: Resilience) -> dict[str, Any]:
    retries = resilience.retries
    if retries.attempts == 0:
        return {"attempts": 0}
    written: dict[str, Any] = {"attempts": retries.attempts, "retryOn": ",".join(retries.on)}
    if retries.per_try_timeout.seconds >= SHORTEST_DURATION:
        written["perTryTimeout"] = plain_duration(retries.per_try_timeout)
    return written
