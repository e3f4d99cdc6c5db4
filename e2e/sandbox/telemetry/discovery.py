"""Finds the pods to scrape, in place of Prometheus' own Kubernetes discovery, which Debian's build leaves out.

The targets and their `__meta_kubernetes_*` labels are those of Prometheus' role `pod`, so that the usual relabelling
rules work on them. They reach Prometheus through a file, which it watches.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from e2e.sandbox.mesh.reflector import ApiAccess, Reflector

Json = dict[str, Any]

PREFIX = "__meta_kubernetes"
SETTLE_SECONDS = 0.05
"""Changes within so short a time are written once."""


class PodDiscovery:
    """Keeps a file of scrape targets in step with the pods of the API server."""

    def __init__(self, access: ApiAccess, targets_file: Path) -> None:
        self._changed = asyncio.Event()
        self._pods = Reflector(access, "/api/v1/pods", self._changed.set)
        self._targets_file = targets_file
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to watch; the file is there when this returns."""
        write_targets(self._targets_file, [])
        self._pods.start()
        self._task = asyncio.create_task(self._follow(), name="pod discovery")

    async def stop(self) -> None:
        """Stop watching; the file stays as it is."""
        await self._pods.stop()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        written: list[Json] = []
        while True:
            await self._changed.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            self._changed.clear()
            targets = pod_targets(self._pods.objects)
            if targets != written:
                write_targets(self._targets_file, targets)
                written = targets


def write_targets(file: Path, targets: list[Json]) -> None:
    """Write a file of targets in one step, so that Prometheus never reads half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(targets, indent=1))
    fresh.replace(file)


def pod_targets(pods: Iterable[Json]) -> list[Json]:
    """One target for each container port of each pod that has an address (one without a port if none is declared)."""
    targets = []
    for pod in pods:
        address = pod.get("status", {}).get("podIP")
        if not address:
            continue
        labels = _pod_labels(pod, address)
        declared = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
        for port in declared or [None]:
            extra = {} if port is None else {f"{PREFIX}_pod_container_port_number": str(port["containerPort"])}
            host = address if port is None else f"{address}:{port['containerPort']}"
            targets.append({"targets": [host], "labels": labels | extra})
    return targets


def _pod_labels(pod: Json, address: str) -> dict[str, str]:
    metadata, status = pod["metadata"], pod["status"]
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    labels = {
        f"{PREFIX}_namespace": metadata["namespace"],
        f"{PREFIX}_pod_name": metadata["name"],
        f"{PREFIX}_pod_uid": metadata.get("uid", ""),
        f"{PREFIX}_pod_ip": address,
        f"{PREFIX}_pod_host_ip": status.get("hostIP", ""),
        f"{PREFIX}_pod_node_name": pod["spec"].get("nodeName", ""),
        f"{PREFIX}_pod_phase": status.get("phase", ""),
        f"{PREFIX}_pod_ready": conditions.get("Ready", "unknown").lower(),
    }
    for kind in ("label", "annotation"):
        for key, value in (metadata.get(f"{kind}s") or {}).items():
            name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
            labels[f"{PREFIX}_pod_{kind}_{name}"] = value
            labels[f"{PREFIX}_pod_{kind}present_{name}"] = "true"
    return labels
