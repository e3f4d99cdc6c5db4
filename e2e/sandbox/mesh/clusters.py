"""Envoy clusters and their endpoints, one for each port of a Service and each subset."""

from collections.abc import Iterator, Mapping

from e2e.sandbox.mesh.names import Json, cluster_name, envoy_duration
from e2e.sandbox.mesh.registry import Endpoint, Port, Protocol, Service
from e2e.sandbox.mesh.rules import Rules

UNLIMITED = 4294967295
DEFAULT_CONNECT_TIMEOUT = "10s"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

_SIMPLE_BALANCERS = {
    "ROUND_ROBIN": "ROUND_ROBIN",
    "RANDOM": "RANDOM",
    "LEAST_CONN": "LEAST_REQUEST",
    "LEAST_REQUEST": "LEAST_REQUEST",
    "UNSPECIFIED": "LEAST_REQUEST",
}


def clusters_of(service: Service, rules: Rules) -> Iterator[tuple[Json, Json]]:
    """Every cluster of a Service with its endpoints: one per port for all pods and one per subset."""
    rule = rules.for_host(service.host, service.namespace)
    for port in service.ports:
        if port.protocol is Protocol.OTHER:
            continue
        for subset in rule.subsets:
            selected = [endpoint for endpoint in service.endpoints if endpoint.matches(subset.labels)]
            name = cluster_name(port.number, subset.name, service.host)
            yield _cluster(name, port, rule.policy_for(subset.name, port.number)), _endpoints(name, port, selected)
        name = cluster_name(port.number, "", service.host)
        yield _cluster(name, port, rule.policy_for("", port.number)), _endpoints(name, port, service.endpoints)


def _cluster(name: str, port: Port, policy: Json) -> Json:
    pool = policy.get("connectionPool", {})
    tcp = pool.get("tcp", {})
    cluster: Json = {
        "name": name,
        "type": "EDS",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [_thresholds(pool)]},
        "connect_timeout": envoy_duration(tcp.get("connectTimeout", DEFAULT_CONNECT_TIMEOUT)),
        "common_lb_config": {"locality_weighted_lb_config": {}},
        "typed_extension_protocol_options": {HTTP_OPTIONS: _http_options(port, pool.get("http", {}))},
    }
    _balance(cluster, policy.get("loadBalancer", {}))
    if policy.get("outlierDetection") is not None:
        outlier = policy["outlierDetection"]
        cluster["outlier_detection"] = _outlier_detection(outlier)
        panic = outlier.get("minHealthPercent", 0)
        cluster["common_lb_config"]["healthy_panic_threshold"] = {"value": panic} if panic else {}
    return cluster


def _thresholds(pool: Json) -> Json:
    http = pool.get("http", {})
    return {
        "max_connections": pool.get("tcp", {}).get("maxConnections") or UNLIMITED,
        "max_pending_requests": http.get("http1MaxPendingRequests") or UNLIMITED,
        "max_requests": http.get("http2MaxRequests") or UNLIMITED,
        "max_retries": http.get("maxRetries") or UNLIMITED,
        "track_remaining": True,
    }


def _http_options(port: Port, http: Json) -> Json:
    upgrade = http.get("h2UpgradePolicy") == "UPGRADE"
    kind = "http2_protocol_options" if port.protocol is Protocol.HTTP2 or upgrade else "http_protocol_options"
    options: Json = {
        "@type": f"type.googleapis.com/{HTTP_OPTIONS}",
        "explicit_http_config": {kind: {}},
    }
    common: Json = {}
    if http.get("maxRequestsPerConnection"):
        common["max_requests_per_connection"] = http["maxRequestsPerConnection"]
    if http.get("idleTimeout"):
        common["idle_timeout"] = envoy_duration(http["idleTimeout"])
    if common:
        options["common_http_protocol_options"] = common
    return options


def _balance(cluster: Json, balancer: Json) -> None:
    consistent = balancer.get("consistentHash")
    if consistent is None:
        cluster["lb_policy"] = _SIMPLE_BALANCERS.get(balancer.get("simple", ""), "LEAST_REQUEST")
        return
    if consistent.get("maglev") is not None:
        cluster["lb_policy"] = "MAGLEV"
        if consistent["maglev"].get("tableSize"):
            cluster["maglev_lb_config"] = {"table_size": str(consistent["maglev"]["tableSize"])}
        return
    ring = consistent.get("ringHash", {}).get("minimumRingSize") or consistent.get("minimumRingSize") or 1024
    cluster["lb_policy"] = "RING_HASH"
    cluster["ring_hash_lb_config"] = {"minimum_ring_size": str(ring)}


def _outlier_detection(outlier: Json) -> Json:
    detection: Json = {"enforcing_success_rate": 0}
    counted = {
        "consecutive5xxErrors": ("consecutive_5xx", "enforcing_consecutive_5xx"),
        "consecutiveGatewayErrors": ("consecutive_gateway_failure", "enforcing_consecutive_gateway_failure"),
    }
    for source, (limit, enforcing) in counted.items():
        if outlier.get(source) is not None:
            detection[limit] = outlier[source]
            detection[enforcing] = 100 if outlier[source] else 0
    if outlier.get("interval"):
        detection["interval"] = envoy_duration(outlier["interval"])
    if outlier.get("baseEjectionTime"):
        detection["base_ejection_time"] = envoy_duration(outlier["baseEjectionTime"])
    if outlier.get("maxEjectionPercent"):
        detection["max_ejection_percent"] = outlier["maxEjectionPercent"]
    if outlier.get("splitExternalLocalOriginErrors"):
        detection["split_external_local_origin_errors"] = True
        if outlier.get("consecutiveLocalOriginFailures") is not None:
            detection["consecutive_local_origin_failure"] = outlier["consecutiveLocalOriginFailures"]
            detection["enforcing_consecutive_local_origin_failure"] = 100
    return detection


def _endpoints(name: str, port: Port, endpoints: list[Endpoint] | tuple[Endpoint, ...]) -> Json:
    reachable = [
        _endpoint(endpoint, endpoint.ports[port.name]) for endpoint in endpoints if port.name in endpoint.ports
    ]
    assignment: Json = {"cluster_name": name, "endpoints": []}
    if reachable:
        # Localities are weighted: one without a weight gets nothing. Hashing wants the locality said, if only empty.
        group = {"locality": {}, "lb_endpoints": reachable, "load_balancing_weight": len(reachable)}
        assignment["endpoints"] = [group]
    return assignment


def _endpoint(endpoint: Endpoint, port: int) -> Json:
    address: Mapping[str, object] = {"address": endpoint.address, "port_value": port}
    return {
        "endpoint": {"address": {"socket_address": address}},
        "health_status": "HEALTHY",
        "load_balancing_weight": 1,
        "metadata": {
            "filter_metadata": {
                "istio": {"workload": endpoint.workload, "namespace": endpoint.namespace, "pod": endpoint.pod}
            }
        },
    }
