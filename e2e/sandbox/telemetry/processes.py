"""The processes behind pods: who they are, by the sandbox's node agents, and what they use, by the kernel."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from e2e.sandbox.telemetry.gpus import GpuHolder

Json = dict[str, Any]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat, counted behind the command's name.
_USER_TIME, _SYSTEM_TIME, _RESIDENT_PAGES = 11, 12, 21


@dataclass(frozen=True)
class ProcessUse:
    """A container's process and the GPU numbers it was given."""

    pid: int | None
    gpus: tuple[int, ...]


class NodeAgents:
    """Asks the sandbox's node agents; a node without one (a real kubelet) knows nothing of this kind."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def processes(self, node: Json) -> dict[GpuHolder, ProcessUse]:
        """The containers that run on a node, empty where nobody can say."""
        status = node.get("status", {})
        port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
        addresses = [item["address"] for item in status.get("addresses", []) if item["type"] == "InternalIP"]
        if not port or not addresses:
            return {}
        for scheme in ("https", "http"):
            try:
                # The agent's certificate is its own, as a kubelet's often is.
                async with self._session.get(f"{scheme}://{addresses[0]}:{port}/sandbox/pods", ssl=False) as answer:
                    if answer.status == 200:
                        return _containers(await answer.json())
            except (aiohttp.ClientError, TimeoutError):
                continue
        return {}


def _containers(pods: list[Json]) -> dict[GpuHolder, ProcessUse]:
    return {
        GpuHolder(pod["namespace"], pod["name"], container["name"]): ProcessUse(
            container.get("pid"), tuple(container.get("gpus", ()))
        )
        for pod in pods
        for container in pod["containers"]
    }


def process_use(pid: int) -> tuple[float | None, float]:
    """CPU seconds used so far and resident bytes of a process; None and 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None, 0.0
    return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS, float(int(fields[_RESIDENT_PAGES]) * _PAGE)
