"""A simulated node: its registration, its capacity and its heartbeats."""

from __future__ import annotations

import asyncio
import logging
import platform
import uuid

from e2e.sandbox.controllers.client import CONNECTION_ERRORS, NODES, ApiClient, ApiError, Obj
from e2e.sandbox.controllers.times import now, to_text

from .gpus import GPU
from .settings import AgentSettings

log = logging.getLogger(__name__)

SIMULATED_GPU = "slipway.dev/simulated-gpu"
SANDBOX = "slipway.dev/sandbox"
PODS_PER_NODE = 250


class SandboxNode:
    """One Node object and what keeps it Ready."""

    def __init__(self, client: ApiClient, settings: AgentSettings, number: int, address: str) -> None:
        self.name = f"sandbox-node-{number}"
        self.address = address
        self._client = client
        self._settings = settings
        self._port = 0
        self._ready_since = to_text(now())

    async def register(self, port: int) -> None:
        """Create the Node or take over an existing one, and report it Ready; `port` is where logs are served."""
        self._port = port
        node = await self._client.find(NODES, None, self.name)
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64"),
            "nvidia.com/gpu.product": "Simulated-GPU",
            SANDBOX: "true",
        }
        annotations = {SIMULATED_GPU: "true"}
        if node is None:
            meta = {"name": self.name, "labels": labels, "annotations": annotations}
            node = await self._client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})
        else:
            patch = {"metadata": {"labels": labels, "annotations": annotations}}
            node = await self._client.merge(NODES, node, patch)
        # A real API server taints new nodes until a node controller, which is absent here, lifts the taint.
        taints = [taint for taint in node["spec"].get("taints") or () if "not-ready" not in taint["key"]]
        if len(taints) != len(node["spec"].get("taints") or ()):
            node = await self._client.merge(NODES, node, {"spec": {"taints": taints or None}})
        await self._client.merge(NODES, node, {"status": self._status()}, "status")

    def _status(self) -> Obj:
        settings = self._settings
        capacity = {
            "cpu": str(settings.cpus),
            "memory": settings.memory,
            "ephemeral-storage": "100Gi",
            "pods": str(PODS_PER_NODE),
            GPU: str(settings.gpus),
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": self._conditions(),
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "machineID": uuid.uuid5(uuid.NAMESPACE_DNS, self.name).hex,
                "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_URL, self.name)),
                "bootID": str(uuid.uuid5(uuid.NAMESPACE_OID, self._ready_since)),
                "kernelVersion": platform.release(),
                "osImage": "Slipway sandbox (simulated node, no containers)",
                "containerRuntimeVersion": "sandbox://0.1",
                "kubeletVersion": "v1.36.0-sandbox",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "amd64"),
            },
        }

    def _conditions(self) -> list[Obj]:
        moment = to_text(now())
        wanted = (
            ("MemoryPressure", "False", "KubeletHasSufficientMemory", "sandbox node agent has sufficient memory"),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "sandbox node agent has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "sandbox node agent has sufficient PIDs"),
            ("Ready", "True", "KubeletReady", "sandbox node agent is posting ready status"),
        )
        return [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": moment,
                "lastTransitionTime": self._ready_since,
            }
            for kind, status, reason, message in wanted
        ]

    async def keep_alive(self) -> None:
        """Write a heartbeat now and then, until cancelled; a Node that was deleted is registered again."""
        while True:
            await asyncio.sleep(self._settings.heartbeat)
            try:
                node = await self._client.find(NODES, None, self.name)
                if node is None:
                    await self.register(self._port)
                    continue
                await self._client.merge(NODES, node, {"status": {"conditions": self._conditions()}}, "status")
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.info("heartbeat of %s: %s", self.name, error)
