"""What the router held when: every change of a VirtualService's weights, from a watch that misses none."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from e2e.sandbox.controllers.client import ApiClient
from tests.integration.bench import VIRTUAL_SERVICES

__all__ = ["RouterWatch"]


@dataclass
class RouterWatch:
    """The weight of one revision in the route that unpinned requests take."""

    prefix: str
    """What the revision's name begins with."""
    weights: list[tuple[float, int]] = field(default_factory=list)
    """Moments, in seconds since the epoch, and the weight from then on."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @contextlib.asynccontextmanager
    async def running(self, client: ApiClient, namespace: str, name: str) -> AsyncIterator[None]:
        """Watch while the block runs."""
        watching = asyncio.create_task(self._watch(client, namespace, name))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, client: ApiClient, namespace: str, name: str) -> None:
        version = (await client.get(VIRTUAL_SERVICES, namespace, name))["metadata"]["resourceVersion"]
        selector = f"metadata.name={name}"
        events = client.watch(VIRTUAL_SERVICES, version, namespace=namespace, field_selector=selector, seconds=600)
        async for event in events:
            if event["type"] != "BOOKMARK":
                await self._note(time.time(), self._weight(event["object"]))

    def _weight(self, service: dict[str, Any]) -> int:
        default = next((route for route in service["spec"]["http"] if route.get("name") == "default"), None)
        found = [
            int(target.get("weight", 100))
            for target in (default or {}).get("route", ())
            if target["destination"].get("subset", "").startswith(self.prefix)
        ]
        return sum(found)

    async def _note(self, at: float, weight: int) -> None:
        async with self.changed:
            if weight != (self.weights[-1][1] if self.weights else 0):
                self.weights.append((at, weight))
            self.changed.notify_all()

    async def has_weight(self) -> None:
        """Wait for the first weight above 0."""
        async with self.changed:
            await self.changed.wait_for(lambda: bool(self.weights))

    @property
    def zero_at(self) -> float:
        """When the weight became 0 for the last time; infinite while it is not 0."""
        return self.weights[-1][0] if self.weights and self.weights[-1][1] == 0 else float("inf")

    @property
    def seconds_with_weight(self) -> float:
        """How long the weight was above 0, all its times together; infinite while it is."""
        ends = [*self.weights, (self.zero_at, 0)]
        return sum(end - begin for (begin, weight), (end, _) in pairwise(ends) if weight)
