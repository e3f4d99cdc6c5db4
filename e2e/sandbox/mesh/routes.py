"""HTTP routes of a VirtualService as Envoy routes."""

from collections.abc import Mapping
from dataclasses import dataclass

from e2e.sandbox.mesh.matches import route_match, takes_everything
from e2e.sandbox.mesh.names import Json, cluster_name, envoy_duration, full_host, object_key
from e2e.sandbox.mesh.registry import Service
from e2e.sandbox.mesh.retries import retry_policy
from e2e.sandbox.mesh.rules import Rules

CONFIG_PREFIX = "/apis/networking.istio.io/v1alpha3/namespaces"
FAULT_FILTER = "envoy.filters.http.fault"
FAULT_TYPE = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
GRPC_STATUS = {"CANCELLED": 1, "UNKNOWN": 2, "DEADLINE_EXCEEDED": 4, "RESOURCE_EXHAUSTED": 8, "ABORTED": 10}
GRPC_STATUS |= {"UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15}
REDIRECTS = {302: "FOUND", 303: "SEE_OTHER", 307: "TEMPORARY_REDIRECT", 308: "PERMANENT_REDIRECT"}


@dataclass(frozen=True)
class RouteScope:
    """What a route is translated within: the port a request came in at, and what the mesh knows."""

    listener_port: int
    services: Mapping[str, Service]
    rules: Rules


def routes_for(virtual_service: Json, http: list[Json], scope: RouteScope) -> list[Json]:
    """The Envoy routes of a VirtualService whose HTTP routes (delegates merged in) are `http`.

    Routes after one that takes everything are left out, as no request could reach them.
    """
    routes: list[Json] = []
    for route in http:
        for match in route.get("match") or [None]:
            if match and match.get("port") and match["port"] != scope.listener_port:
                continue
            translated = _route(virtual_service, route, match, scope)
            routes.append(translated)
            if takes_everything(translated["match"]):
                return routes
    return routes


def default_route(service: Service, port: int) -> Json:
    """The route to a Service of which no VirtualService speaks."""
    action: Json = {"cluster": cluster_name(port, "", service.host), "timeout": "0s", "max_grpc_timeout": "0s"}
    action["retry_policy"] = retry_policy(None)
    return {
        "name": "default",
        "match": {"prefix": "/"},
        "route": action,
        "decorator": {"operation": f"{service.host}:{port}/*"},
    }


def _route(virtual_service: Json, http: Json, match: Json | None, scope: RouteScope) -> Json:
    namespace, name = object_key(virtual_service)
    envoy: Json = {
        "match": route_match(match),
        "metadata": {"filter_metadata": {"istio": {"config": f"{CONFIG_PREFIX}/{namespace}/virtual-service/{name}"}}},
    }
    label = ".".join(part for part in (http.get("name", ""), (match or {}).get("name", "")) if part)
    if label:
        envoy["name"] = label
    envoy.update(_headers(http.get("headers", {})))
    if http.get("redirect"):
        envoy["redirect"] = _redirect(http["redirect"])
    elif http.get("directResponse"):
        envoy["direct_response"] = _direct_response(http["directResponse"])
    else:
        _forward(envoy, virtual_service, http, scope)
    fault = _fault(http.get("fault"))
    if fault:
        envoy["typed_per_filter_config"] = {FAULT_FILTER: fault}
    return envoy


def _forward(envoy: Json, virtual_service: Json, http: Json, scope: RouteScope) -> None:
    """Fill in where the requests go, in what shares, and how they are sent there."""
    namespace, name = object_key(virtual_service)
    timeout = envoy_duration(http.get("timeout", "0s"))
    action: Json = {"timeout": timeout, "max_grpc_timeout": timeout}
    # A single destination needs no weight; in a list, one without a weight gets nothing.
    destinations = http.get("route", [])
    taking = destinations if len(destinations) == 1 else [item for item in destinations if item.get("weight", 0) > 0]
    if len(taking) == 1:
        target = _cluster(taking[0]["destination"], namespace, scope)
        action["cluster"] = target
        _, port, _, host = target.split("|")
        operation = f"{host}:{port}/*"
        for key, values in _headers(taking[0].get("headers", {})).items():
            envoy[key] = [*envoy.get(key, []), *values]
    else:
        operation = f"{name}:{scope.listener_port}/*"
        action["weighted_clusters"] = {
            "clusters": [
                {
                    "name": _cluster(item["destination"], namespace, scope),
                    "weight": item["weight"],
                    **_headers(item.get("headers", {})),
                }
                for item in taking
            ]
        }
    hashes = [policy for item in taking for policy in _hash_policy(item["destination"], namespace, scope)]
    if hashes:
        action["hash_policy"] = hashes
    retries = retry_policy(http.get("retries"))
    if retries:
        action["retry_policy"] = retries
    mirrors = _mirrors(http, namespace, scope)
    if mirrors:
        action["request_mirror_policies"] = mirrors
    action.update(_rewrite(http.get("rewrite", {})))
    envoy["route"] = action
    envoy["decorator"] = {"operation": operation}


def _cluster(destination: Json, namespace: str, scope: RouteScope) -> str:
    host = full_host(destination["host"], namespace)
    port = _port(destination, host, scope)
    return cluster_name(port, destination.get("subset", ""), host)


def _port(destination: Json, host: str, scope: RouteScope) -> int:
    """The destination's port: as written, else the Service's only one, else the one the request came in at."""
    number: int = destination.get("port", {}).get("number", 0)
    if number:
        return number
    service = scope.services.get(host)
    if service is not None and len(service.ports) == 1:
        return service.ports[0].number
    return scope.listener_port


def _hash_policy(destination: Json, namespace: str, scope: RouteScope) -> list[Json]:
    host = full_host(destination["host"], namespace)
    service = scope.services.get(host)
    if service is None:
        return []
    policy = scope.rules.for_host(host, service.namespace).policy_for(
        destination.get("subset", ""), _port(destination, host, scope)
    )
    consistent = policy.get("loadBalancer", {}).get("consistentHash", {})
    if consistent.get("httpCookie"):
        cookie = {key: value for key, value in consistent["httpCookie"].items() if key in {"name", "path"}}
        # A cookie without a lifetime is only read, never set.
        if consistent["httpCookie"].get("ttl"):
            cookie["ttl"] = envoy_duration(consistent["httpCookie"]["ttl"])
        return [{"cookie": cookie}]
    if consistent.get("httpHeaderName"):
        return [{"header": {"header_name": consistent["httpHeaderName"]}}]
    if consistent.get("httpQueryParameterName"):
        return [{"query_parameter": {"name": consistent["httpQueryParameterName"]}}]
    if consistent.get("useSourceIp"):
        return [{"connection_properties": {"source_ip": True}}]
    return []


def _mirrors(http: Json, namespace: str, scope: RouteScope) -> list[Json]:
    wanted = [(item["destination"], item.get("percentage")) for item in http.get("mirrors", [])]
    if not wanted and http.get("mirror"):
        wanted = [(http["mirror"], http.get("mirrorPercentage"))]
    policies = []
    for destination, percentage in wanted:
        if percentage is not None and not percentage.get("value", 0):
            continue
        policies.append(
            {
                "cluster": _cluster(destination, namespace, scope),
                "runtime_fraction": {"default_value": _fraction(percentage)},
                "trace_sampled": False,
            }
        )
    return policies


def _fraction(percentage: Json | None) -> Json:
    if percentage is None:
        return {"numerator": 100}
    return {"numerator": round(percentage.get("value", 0) * 10_000), "denominator": "MILLION"}


def _headers(headers: Json) -> Json:
    """Header changes in Envoy's four lists: set replaces, add appends."""
    envoy: Json = {}
    for direction in ("request", "response"):
        operations = headers.get(direction) or {}
        changes = [
            {"header": {"key": key, "value": str(value)}, "append": append}
            for kind, append in (("set", False), ("add", True))
            for key, value in sorted((operations.get(kind) or {}).items())
        ]
        if changes:
            envoy[f"{direction}_headers_to_add"] = changes
        if operations.get("remove"):
            envoy[f"{direction}_headers_to_remove"] = list(operations["remove"])
    return envoy


def _rewrite(rewrite: Json) -> Json:
    action: Json = {}
    if rewrite.get("uri"):
        action["prefix_rewrite"] = rewrite["uri"]
    if rewrite.get("uriRegexRewrite"):
        regex = rewrite["uriRegexRewrite"]
        pattern = {"regex": regex.get("match", "")}
        action["regex_rewrite"] = {"pattern": pattern, "substitution": regex.get("rewrite", "")}
    if rewrite.get("authority"):
        action["host_rewrite_literal"] = rewrite["authority"]
    return action


def _redirect(redirect: Json) -> Json:
    envoy: Json = {"response_code": REDIRECTS.get(redirect.get("redirectCode", 301), "MOVED_PERMANENTLY")}
    fields = {"uri": "path_redirect", "authority": "host_redirect", "port": "port_redirect"}
    fields["scheme"] = "scheme_redirect"
    envoy.update({target: redirect[source] for source, target in fields.items() if redirect.get(source)})
    return envoy


def _direct_response(response: Json) -> Json:
    envoy: Json = {"status": response["status"]}
    body = response.get("body", {})
    if "string" in body:
        envoy["body"] = {"inline_string": body["string"]}
    elif "bytes" in body:
        envoy["body"] = {"inline_bytes": body["bytes"]}
    return envoy


def _fault(fault: Json | None) -> Json | None:
    if not fault:
        return None
    envoy: Json = {"@type": FAULT_TYPE}
    if fault.get("delay"):
        delay = fault["delay"]
        envoy["delay"] = {
            "fixed_delay": envoy_duration(delay["fixedDelay"]),
            "percentage": _fraction(delay.get("percentage")),
        }
    if fault.get("abort"):
        abort = fault["abort"]
        status = _abort_status(abort)
        envoy["abort"] = {**status, "percentage": _fraction(abort.get("percentage"))}
    return envoy


def _abort_status(abort: Json) -> Json:
    if abort.get("grpcStatus"):
        return {"grpc_status": GRPC_STATUS[abort["grpcStatus"]]}
    return {"http_status": abort["httpStatus"]}
