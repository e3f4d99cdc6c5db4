"""What can be set about a node agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .images import ImageTable


@dataclass
class AgentSettings:
    """Settings of a node agent; `start_delay` and the back-off may be changed while it runs."""

    data_dir: Path
    pod_range: str
    """IPv4 range of the pods' addresses, all of it local to this machine."""
    nodes: int = 1
    gpus: int = 8
    """Simulated GPUs on each node."""
    cpus: int = 64
    """CPUs each node claims to have, whatever the machine has."""
    memory: str = "256Gi"
    images: ImageTable = field(default_factory=ImageTable)
    start_delay: float = 0.0
    """Seconds every container waits before it starts: a simulated cold start."""
    restart_backoff: float = 2.0
    """Seconds before the second restart of a failing container, doubled each time (Kubernetes: 10)."""
    restart_backoff_cap: float = 60.0
    """Longest back-off in seconds (Kubernetes: 300)."""
    heartbeat: float = 10.0
    """Seconds between heartbeats of a node."""
    volume_sync: float = 2.0
    """Seconds between two looks at mounted ConfigMaps and Secrets (Kubernetes: about 60)."""
    memory_poll: float = 0.5
    """Seconds between two looks at a container's memory."""
    tokens_file: Path | None = None
    """Static tokens, among them those of service accounts (`system:serviceaccount:NAMESPACE:NAME`)."""
    tls: bool = False
    """Serve logs by HTTPS, as a real API server wants it."""
