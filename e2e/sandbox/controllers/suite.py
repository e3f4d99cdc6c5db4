"""All controllers, started and stopped together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Self

from . import client as api
from .accounts import ClaimController, NamespaceDefaultsController
from .client import Access, ApiClient, Resource
from .deployment import DeploymentController
from .disruption import DisruptionController
from .endpoints import EndpointSliceController
from .events import EventRecorder
from .garbage import GarbageCollector
from .informer import Informer
from .namespaces import NamespaceController
from .replicaset import ReplicaSetController
from .resources import Discovery
from .scheduler import Scheduler

log = logging.getLogger(__name__)

COMPONENT = "sandbox-controllers"
WATCHED = (
    api.PODS,
    api.SERVICES,
    api.NODES,
    api.NAMESPACES,
    api.SERVICE_ACCOUNTS,
    api.CLAIMS,
    api.DEPLOYMENTS,
    api.REPLICA_SETS,
    api.ENDPOINT_SLICES,
    api.DISRUPTION_BUDGETS,
    api.CUSTOM_RESOURCE_DEFINITIONS,
)


class Controllers:
    """Runs every controller against one API server in the current event loop."""

    def __init__(self, access: Access) -> None:
        self._client = ApiClient(access, COMPONENT)
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start and wait until every cache has been filled once."""
        self._task = asyncio.create_task(self.run(), name="controllers")
        ready = asyncio.create_task(self._ready.wait())
        done, _ = await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._task in done:
            ready.cancel()
            await self._task

    async def stop(self) -> None:
        """Stop all controllers and close the connections."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def run(self) -> None:
        """Run until cancelled."""
        caches = {resource: Informer(self._client, resource) for resource in WATCHED}
        events = EventRecorder(self._client, COMPONENT)
        try:
            async with asyncio.TaskGroup() as group:
                for informer in caches.values():
                    group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
                for informer in caches.values():
                    await informer.synced.wait()
                group.create_task(events.run())
                self._start_controllers(group, caches, events)
                self._ready.set()
        finally:
            await self._client.close()

    def _start_controllers(
        self, group: asyncio.TaskGroup, caches: dict[Resource, Informer], events: EventRecorder
    ) -> None:
        client = self._client
        pods, deployments, sets = caches[api.PODS], caches[api.DEPLOYMENTS], caches[api.REPLICA_SETS]
        namespaces = caches[api.NAMESPACES]
        discovery = Discovery(client)
        loops = (
            DeploymentController(client, deployments, sets, pods, events).loop,
            ReplicaSetController(client, sets, pods, events).loop,
            EndpointSliceController(client, caches[api.SERVICES], pods, caches[api.ENDPOINT_SLICES]).loop,
            DisruptionController(client, caches[api.DISRUPTION_BUDGETS], pods, sets, deployments).loop,
            Scheduler(client, pods, caches[api.NODES], events).loop,
            NamespaceController(client, discovery, namespaces).loop,
            NamespaceDefaultsController(client, namespaces, caches[api.SERVICE_ACCOUNTS]).loop,
            ClaimController(client, caches[api.CLAIMS]).loop,
        )
        for loop in loops:
            group.create_task(loop.run(), name=loop.name)
        collector = GarbageCollector(client, discovery, caches)
        group.create_task(collector.run(), name="garbage")
