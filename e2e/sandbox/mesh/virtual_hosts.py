"""Virtual hosts: which routes answer for which Host header.

One listener stands for every gateway and for the sidecar of a client in the mesh. A host without a port is a
request to the gateway where some VirtualService binds one for it, and a request of a mesh client to port 80
otherwise; ``host:PORT`` with a port of the Service is always a request of a mesh client.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from e2e.sandbox.mesh.delegates import routes_of
from e2e.sandbox.mesh.http_routes import AttachedRoutes, attached
from e2e.sandbox.mesh.matches import takes_everything
from e2e.sandbox.mesh.names import DOMAIN, Json, full_host, object_key
from e2e.sandbox.mesh.registry import Protocol, Service
from e2e.sandbox.mesh.routes import RouteScope, default_route, routes_for
from e2e.sandbox.mesh.rules import Rules, creation_order

MESH = "mesh"
DEFAULT_HTTP_PORT = 80


@dataclass
class HostTable:
    """Virtual hosts in the making, with the domains already taken: Envoy refuses a domain that is named twice."""

    hosts: list[Json] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def add(self, name: str, domains: Iterable[str], routes: list[Json]) -> None:
        """Add a virtual host for those of `domains` that are still free."""
        free = [domain for domain in dict.fromkeys(domains) if domain not in self.taken]
        if free:
            self.taken.update(free)
            self.hosts.append({"name": name, "domains": free, "routes": routes, "include_request_attempt_count": True})


def virtual_hosts(
    virtual_services: Iterable[Json],
    http_routes: Iterable[Json],
    services: Mapping[str, Service],
    rules: Rules,
    gateway_port: int,
) -> list[Json]:
    """All virtual hosts, those of the gateway first. Where both speak of a host, VirtualServices beat HTTPRoutes."""
    ordered = sorted(virtual_services, key=creation_order)
    by_key = {object_key(item): item for item in ordered}
    http = {key: routes_of(item, by_key) for key, item in by_key.items()}
    table = HostTable()
    routes = attached(http_routes)
    gateway = RouteScope(gateway_port, services, rules)
    _gateway_hosts(table, ordered, http, gateway)
    for host in list(routes.at_gateways):
        table.add(f"{host}:{gateway_port}", _gateway_domains(host), routes.gateway_routes(host, gateway))
    _mesh_hosts(table, ordered, http, routes, services, rules)
    return table.hosts


def _full_hosts(virtual_service: Json) -> list[str]:
    namespace, _ = object_key(virtual_service)
    return [full_host(host, namespace) for host in virtual_service.get("spec", {}).get("hosts") or []]


def _gateway_hosts(
    table: HostTable, ordered: list[Json], http: Mapping[tuple[str, str], list[Json]], scope: RouteScope
) -> None:
    owners: dict[str, list[Json]] = {}
    for item in ordered:
        if any(gateway != MESH for gateway in item.get("spec", {}).get("gateways") or []):
            for host in _full_hosts(item):
                owners.setdefault(host, []).append(item)
    # Hosts with the same owners share one virtual host, named after the first.
    shared: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for host, items in owners.items():
        shared.setdefault(tuple(object_key(item) for item in items), []).append(host)
    for keys, hosts in shared.items():
        items = owners[hosts[0]]
        routes = [route for key, item in zip(keys, items, strict=True) for route in routes_for(item, http[key], scope)]
        domains = [domain for host in hosts for domain in _gateway_domains(host)]
        table.add(f"{hosts[0]}:{scope.listener_port}", domains, _catch_all_last(routes))


def _gateway_domains(host: str) -> list[str]:
    return [host] if "*" in host else [host, f"{host}:*"]


def _catch_all_last(routes: list[Json]) -> list[Json]:
    """Routes of several owners: those with a condition keep a chance, the oldest catch-all beats the others."""
    return sorted(routes, key=lambda route: takes_everything(route["match"]))


def _mesh_hosts(
    table: HostTable,
    ordered: list[Json],
    http: Mapping[tuple[str, str], list[Json]],
    attached_routes: AttachedRoutes,
    services: Mapping[str, Service],
    rules: Rules,
) -> None:
    # For a client in the mesh the oldest VirtualService of a host is the only one.
    owners: dict[str, Json] = {}
    for item in ordered:
        if MESH in (item.get("spec", {}).get("gateways") or [MESH]):
            for host in _full_hosts(item):
                owners.setdefault(host, item)
    for host, service in services.items():
        for port in service.ports:
            if port.protocol is Protocol.OTHER:
                continue
            scope = RouteScope(port.number, services, rules)
            owner = owners.get(host)
            routes = attached_routes.service_routes(host, scope) or [default_route(service, port.number)]
            if owner is not None:
                routes = routes_for(owner, http[object_key(owner)], scope)
            table.add(f"{host}:{port.number}", _mesh_domains(service, port.number), routes)
    scope = RouteScope(DEFAULT_HTTP_PORT, services, rules)
    for host, owner in owners.items():
        if host not in services:
            domains = [host] if "*" in host else [f"{host}:{DEFAULT_HTTP_PORT}", host]
            table.add(f"{host}:{DEFAULT_HTTP_PORT}", domains, routes_for(owner, http[object_key(owner)], scope))


def _mesh_domains(service: Service, port: int) -> list[str]:
    """The ways to write a Service's host; the bare name is not among them, as the client's namespace is not known."""
    names = [f"{service.name}.{service.namespace}.{DOMAIN}"]
    names += [f"{service.name}.{service.namespace}.svc", f"{service.name}.{service.namespace}"]
    domains = [f"{name}:{port}" for name in names]
    return domains + names if port == DEFAULT_HTTP_PORT else domains
