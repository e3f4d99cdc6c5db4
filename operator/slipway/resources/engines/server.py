"""What a pod template says of a model server, whichever it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.api.open_parts import containers_of
from slipway.api.revisions import Revision, template_of
from slipway.api.versions import Engine
from slipway.resources.arguments import GRPC_PORT, HTTP_PORT

__all__ = ["SERVER", "Health", "Server", "default_ports", "http_port", "named_ports"]

SERVER = "server"
"""Name of the container that answers requests."""
_PORTS: Mapping[Engine, Mapping[str, int]] = {
    Engine.SLIPWAY: {"http": HTTP_PORT, "grpc": GRPC_PORT},
    Engine.TRITON: {"http": 8000, "grpc": 8001, "metrics": 8002},
    Engine.VLLM: {"http": 8000},
    Engine.CUSTOM: {"http": 8080, "grpc": 9000},
}


@dataclass(frozen=True, slots=True)
class Health:
    """Paths of the probes, asked on the port ``http``."""

    ready: str = "/v2/health/ready"
    live: str = "/v2/health/live"


@dataclass(frozen=True, slots=True)
class Server:
    """The parts of a pod in which engines differ; all else is the same for every model server."""

    image: str
    args: tuple[str, ...]
    ports: Mapping[str, int]
    """By name. Services lead to ``http`` and ``grpc``; metrics are scraped from ``metrics``, or else from ``http``."""
    command: tuple[str, ...] = ()
    """In place of the image's entry point."""
    health: Health = Health()
    environment: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Mapping[str, Any], ...] = ()
    mounts: tuple[Mapping[str, Any], ...] = ()
    init_containers: tuple[Mapping[str, Any], ...] = ()
    user: int | None = None
    """For images whose own user is root, which pods are not run as."""
    pre_stop: int = 0
    """Seconds that the server goes on after it was taken from the Service, before it is told to stop."""

    @property
    def metrics_port(self) -> int:
        """The port that Prometheus scrapes."""
        return self.ports.get("metrics", self.ports["http"])


def default_ports(engine: Engine) -> Mapping[str, int]:
    """An engine's ports by name."""
    return _PORTS[engine]


def named_ports(template: Mapping[str, Any]) -> dict[str, int]:
    """The ports that a pod template, or an overlay on one, gives the server's container, by name."""
    server: Mapping[str, Any] = next((one for one in containers_of(template) if one.get("name") == SERVER), {})
    ports = server.get("ports")
    return {
        str(port["name"]): port["containerPort"]
        for port in (ports if isinstance(ports, list) else ())
        if isinstance(port, Mapping) and port.get("name") and isinstance(port.get("containerPort"), int)
    }


def http_port(revision: Revision) -> int:
    """Where the operator asks a revision's servers."""
    template = template_of(revision)
    named = named_ports(template if template is not None else revision.runtime.pod_template)
    return named.get("http", default_ports(revision.runtime.engine)["http"])
