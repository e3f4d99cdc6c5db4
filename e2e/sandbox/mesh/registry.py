"""The Services of the cluster with the endpoints behind them, as the mesh sees them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from e2e.sandbox.mesh.names import Json, object_key, service_host

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


class Protocol(Enum):
    """What is spoken behind a port, told by the port's name or appProtocol."""

    HTTP1 = "http"
    HTTP2 = "http2"
    OTHER = "tcp"


@dataclass(frozen=True)
class Port:
    """A port of a Service."""

    number: int
    name: str
    protocol: Protocol


@dataclass(frozen=True)
class Endpoint:
    """A ready pod behind a Service; `ports` maps the names of the Service's ports to port numbers of the pod."""

    address: str
    ports: Mapping[str, int]
    labels: Mapping[str, str]
    pod: str
    workload: str
    namespace: str

    def matches(self, selector: Mapping[str, str]) -> bool:
        """Whether the pod carries every label of `selector`."""
        return all(self.labels.get(key) == value for key, value in selector.items())


@dataclass(frozen=True)
class Service:
    """A Service with its ready endpoints."""

    name: str
    namespace: str
    ports: tuple[Port, ...]
    endpoints: tuple[Endpoint, ...]

    @property
    def host(self) -> str:
        """The full host name."""
        return service_host(self.name, self.namespace)

    def port_for(self, number: int) -> Port | None:
        """The port of that number, if the Service has it."""
        return next((port for port in self.ports if port.number == number), None)


def read_services(services: Iterable[Json], slices: Iterable[Json], pods: Iterable[Json]) -> dict[str, Service]:
    """The Services by full host name, each with the ready endpoints that its EndpointSlices list."""
    pods_by_key = {object_key(pod): pod for pod in pods}
    endpoints: dict[tuple[str, str], dict[str, Endpoint]] = defaultdict(dict)
    for endpoint_slice in slices:
        namespace, _ = object_key(endpoint_slice)
        owner = endpoint_slice["metadata"].get("labels", {}).get(SERVICE_NAME_LABEL)
        if owner:
            for endpoint in _ready_endpoints(endpoint_slice, pods_by_key):
                endpoints[namespace, owner].setdefault(endpoint.address, endpoint)
    found = {}
    for service in services:
        namespace, name = object_key(service)
        ports = tuple(_port(port) for port in service.get("spec", {}).get("ports", []))
        behind = tuple(sorted(endpoints[namespace, name].values(), key=lambda endpoint: endpoint.address))
        found[service_host(name, namespace)] = Service(name, namespace, ports, behind)
    return found


def _port(port: Json) -> Port:
    name = port.get("name", "")
    spoken = port.get("appProtocol") or name.split("-", 1)[0]
    if spoken in {"grpc", "grpc-web", "http2", "kubernetes.io/h2c"}:
        return Port(port["port"], name, Protocol.HTTP2)
    if spoken in {"tcp", "tls", "https", "mongo", "mysql", "redis", "udp"}:
        return Port(port["port"], name, Protocol.OTHER)
    return Port(port["port"], name, Protocol.HTTP1)


def _ready_endpoints(endpoint_slice: Json, pods: Mapping[tuple[str, str], Json]) -> Iterable[Endpoint]:
    namespace, _ = object_key(endpoint_slice)
    ports = {port.get("name") or "": port["port"] for port in endpoint_slice.get("ports") or [] if port.get("port")}
    for item in endpoint_slice.get("endpoints") or []:
        # Absent means ready; a terminating pod is written as not ready.
        if item.get("conditions", {}).get("ready", True) is False:
            continue
        pod_name = (item.get("targetRef") or {}).get("name", "")
        pod = pods.get((namespace, pod_name), {})
        labels = pod.get("metadata", {}).get("labels", {})
        for address in item.get("addresses", []):
            yield Endpoint(address, ports, labels, pod_name, _workload(pod), namespace)


def _workload(pod: Json) -> str:
    """The Deployment a pod belongs to, told as istiod tells it: the ReplicaSet's name without its hash."""
    metadata = pod.get("metadata", {})
    template_hash = metadata.get("labels", {}).get("pod-template-hash")
    for owner in metadata.get("ownerReferences", []):
        if owner.get("controller"):
            name: str = owner["name"]
            return name.removesuffix(f"-{template_hash}") if template_hash else name
    own_name: str = metadata.get("name", "")
    return own_name
