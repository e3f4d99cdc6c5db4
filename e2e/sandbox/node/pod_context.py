"""What the containers of a pod share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.sandbox.controllers.client import Obj

from .settings import AgentSettings
from .volumes import PodVolumes

SIDECAR_FILE = "sidecar"
"""File in the agent's folder with the URL of the Envoy through which pods reach Services."""
MARKER = "SLIPWAY_SANDBOX_AGENT"
POD_MARKER = "SLIPWAY_SANDBOX_POD"


class PodContext:
    """The pod's definition, addresses, folder, volumes and GPUs, and the way to say that something changed."""

    def __init__(
        self,
        pod: Obj,
        *,
        address: str,
        host_address: str,
        folder: Path,
        volumes: PodVolumes,
        gpus: Mapping[str, tuple[int, ...]],
        gpu_identity: Callable[[int], str],
        settings: AgentSettings,
        marker: str,
        api_url: str,
        changed: Callable[[], None],
    ) -> None:
        self.pod = pod
        self.address = address
        self.host_address = host_address
        self.folder = folder
        self.volumes = volumes
        self.gpus = gpus
        """Numbers of simulated GPUs by container name."""
        self._gpu_identity = gpu_identity
        self.settings = settings
        self.changed = changed
        self._marker = marker
        self._api_url = api_url
        self._background: set[asyncio.Task[Any]] = set()

    def environment(self) -> dict[str, str]:
        """Variables every container gets; nothing else of the agent's own environment reaches it."""
        temporary = self.folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        server = urlsplit(self._api_url)
        return {
            **self._sidecar(),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),
            "TMPDIR": str(temporary),
            "HOSTNAME": self.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": server.hostname or "",
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
            MARKER: self._marker,
            POD_MARKER: self.pod["metadata"]["uid"],
        }

    def _sidecar(self) -> dict[str, str]:
        """What stands for a sidecar: names of Services do not resolve here, but Envoy knows them, as an HTTP proxy."""
        address = self.settings.data_dir / SIDECAR_FILE
        if not address.is_file():
            return {}
        return {"http_proxy": address.read_text(), "no_proxy": "localhost,127.0.0.1,127.0.0.0/8"}

    def gpu_environment(self, container: str) -> dict[str, str]:
        """What the NVIDIA device plugin would set; the ids are those of simulated GPUs."""
        numbers = self.gpus.get(container)
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(map(self._gpu_identity, numbers))} if numbers else {}

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside, no later than the pod's end."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def close(self) -> None:
        """End what is still going on beside."""
        for task in self._background:
            task.cancel()
