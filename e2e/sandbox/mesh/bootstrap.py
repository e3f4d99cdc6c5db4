"""Envoy's start-up configuration: the one listener, and where everything else is asked for."""

from e2e.sandbox.mesh.discovery import HOLD_SECONDS
from e2e.sandbox.mesh.names import Json
from e2e.sandbox.mesh.policies import (
    ALLOW_FILTER,
    DENY_FILTER,
    JWT_FILTER,
    JWT_TYPE,
    RATE_LIMIT_FILTER,
    RATE_LIMIT_TYPE,
)

DISCOVERY_CLUSTER = "discovery"
ROUTE_CONFIG = "mesh"
STAT_SCOPE = "slipway_mesh"
"""Prefix of the request metrics; Prometheus is told to take it off again."""

_API = "type.googleapis.com/envoy.extensions"
_RBAC_FILTERS = (DENY_FILTER, ALLOW_FILTER)
_POLL_PAUSE = "0.01s"
_REQUEST_TAGS = {
    "response_code": "%RESPONSE_CODE%",
    "response_flags": "%RESPONSE_FLAGS%",
    "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
    "route_name": "%ROUTE_NAME%",
    "destination_workload": "%UPSTREAM_METADATA(istio:workload)%",
    "destination_workload_namespace": "%UPSTREAM_METADATA(istio:namespace)%",
}


def bootstrap(listen: tuple[str, int], admin_address: tuple[str, int], discovery_address: tuple[str, int]) -> Json:
    """Envoy's bootstrap; addresses are host and port, where port 0 lets Envoy choose."""
    return {
        "node": {"id": "sandbox", "cluster": "sandbox"},
        "admin": {"address": _address(*admin_address)},
        "dynamic_resources": {"cds_config": discovery_source()},
        "static_resources": {
            "listeners": [_listener(*listen)],
            "clusters": [_discovery_cluster(*discovery_address)],
        },
    }


def discovery_source() -> Json:
    """Where clusters, endpoints and routes are polled from."""
    return {
        "resource_api_version": "V3",
        "initial_fetch_timeout": "5s",
        "api_config_source": {
            "api_type": "REST",
            "transport_api_version": "V3",
            "cluster_names": [DISCOVERY_CLUSTER],
            "refresh_delay": _POLL_PAUSE,
            "request_timeout": f"{HOLD_SECONDS + 10:g}s",
        },
    }


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}


def _discovery_cluster(host: str, port: int) -> Json:
    endpoint = {"endpoint": {"address": _address(host, port)}}
    return {
        "name": DISCOVERY_CLUSTER,
        "type": "STATIC",
        "connect_timeout": "5s",
        # One held poll for each cluster's endpoints.
        "circuit_breakers": {
            "thresholds": [{"max_connections": 65536, "max_pending_requests": 65536, "max_requests": 65536}]
        },
        "load_assignment": {"cluster_name": DISCOVERY_CLUSTER, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _listener(host: str, port: int) -> Json:
    manager = {
        "@type": f"{_API}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "mesh",
        "server_name": "istio-envoy",
        "use_remote_address": True,
        "normalize_path": True,
        "stream_idle_timeout": "0s",
        "rds": {"route_config_name": ROUTE_CONFIG, "config_source": discovery_source()},
        "access_log": [_request_metrics()],
        "http_filters": _http_filters(),
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    return {"name": "mesh", "address": _address(host, port), "filter_chains": [chain]}


def _http_filters() -> list[Json]:
    """The HTTP filters in the order requests pass them; the router comes last. Most do nothing unless a route says so.

    Tokens are checked by keys that routes cannot carry, so that filter's settings are asked for.
    """
    discovered = {"config_source": discovery_source(), "type_urls": [JWT_TYPE]}
    return [
        {
            "name": RATE_LIMIT_FILTER,
            "typed_config": {"@type": RATE_LIMIT_TYPE, "stat_prefix": "local_rate_limit"},
        },
        {"name": JWT_FILTER, "config_discovery": discovered},
        *({"name": name, "typed_config": {"@type": f"{_API}.filters.http.rbac.v3.RBAC"}} for name in _RBAC_FILTERS),
        {"name": "envoy.filters.http.fault", "typed_config": {"@type": f"{_API}.filters.http.fault.v3.HTTPFault"}},
        {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_API}.filters.http.router.v3.Router"}},
    ]


def _request_metrics() -> Json:
    """Istio's standard request metrics, counted once for each request that is answered."""
    tags = [{"name": name, "value_format": value} for name, value in _REQUEST_TAGS.items()]
    return {
        "name": "envoy.access_loggers.stats",
        "typed_config": {
            "@type": f"{_API}.access_loggers.stats.v3.Config",
            "stat_prefix": STAT_SCOPE,
            "counters": [{"stat": {"name": "istio_requests_total", "tags": tags}, "value_fixed": 1}],
            "histograms": [
                {
                    "stat": {"name": "istio_request_duration_milliseconds", "tags": tags},
                    "unit": "Milliseconds",
                    "value_format": "%DURATION%",
                }
            ],
        },
    }
