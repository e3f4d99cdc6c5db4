"""The node's simulated GPUs and who has which."""

from __future__ import annotations

import uuid

from e2e.sandbox.controllers.client import Obj
from e2e.sandbox.controllers.quantities import parse_quantity

GPU = "nvidia.com/gpu"
_NAMESPACE = uuid.UUID("5f0c31a7-6a0d-4a3e-9d51-9bd3a2a1f0aa")


class GpuTable:
    """Gives whole simulated GPUs to pods, lowest number first."""

    def __init__(self, node: str, count: int) -> None:
        self._node = node
        self._count = count
        self._holders: dict[int, str] = {}

    def identity(self, index: int) -> str:
        """The id of a GPU, the same after every start; the word in it says that it is simulated."""
        return f"GPU-simulated-{uuid.uuid5(_NAMESPACE, f'{self._node}/{index}')}"

    def take(self, pod: Obj) -> dict[str, tuple[int, ...]]:
        """GPU numbers for each container of the pod; raises RuntimeError when there are too few."""
        given: dict[str, tuple[int, ...]] = {}
        for container in pod["spec"]["containers"]:
            limits = (container.get("resources") or {}).get("limits") or {}
            wanted = int(parse_quantity(limits.get(GPU, 0)))
            free = [index for index in range(self._count) if index not in self._holders]
            if wanted > len(free):
                self.give_back(pod)
                raise RuntimeError(f"{wanted} GPUs wanted, {len(free)} free")
            for index in free[:wanted]:
                self._holders[index] = pod["metadata"]["uid"]
            if wanted:
                given[container["name"]] = tuple(free[:wanted])
        return given

    def give_back(self, pod: Obj) -> None:
        """Free the pod's GPUs."""
        uid = pod["metadata"]["uid"]
        self._holders = {index: holder for index, holder in self._holders.items() if holder != uid}
