"""One pod's life on a node: volumes, init containers, containers, status, graceful end."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from e2e.sandbox.controllers.client import CONNECTION_ERRORS, PODS, ApiClient, ApiError, Obj
from e2e.sandbox.controllers.events import EventRecorder
from e2e.sandbox.controllers.times import from_text, now

from .container import Container
from .errors import MountError
from .pod_context import PodContext
from .states import Role, Terminated, Waiting
from .status import PodView, pod_status

log = logging.getLogger(__name__)

MOUNT_RETRY_SECONDS = 1.0
WRITE_RETRY_SECONDS = 0.5


class PodWorker:
    """Runs one pod and keeps its status on the API server."""

    def __init__(
        self,
        context: PodContext,
        client: ApiClient,
        events: EventRecorder,
        http: aiohttp.ClientSession,
        on_finished: Callable[[], None],
    ) -> None:
        self.context = context
        self._on_finished = on_finished
        self._client = client
        self._events = events
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._stop = asyncio.Event()
        self._gone = False
        self._prepared = False
        self._finished = False
        known = context.pod.get("status") or {}
        self._conditions: list[Obj] = known.get("conditions") or []
        self._began = from_text(known["startTime"]) if known.get("startTime") else now()
        self._written: Obj | None = None
        self.containers = [
            Container(
                context,
                spec,
                role,
                client=client,
                events=events,
                http=http,
                restarts=_restarts_so_far(known, spec["name"]),
            )
            for spec, role in _containers_of(context.pod)
        ]

    def changed(self) -> None:
        """Something about the pod is different: the status has to be looked at."""
        self._dirty.set()

    def update(self, pod: Obj) -> None:
        """Take in a newer version of the pod."""
        shortened = _grace(pod) < _grace(self.context.pod) and self._stop.is_set()
        self.context.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._stop.set()
            if shortened:
                asyncio.get_running_loop().call_later(_grace(pod), self.kill)

    def vanish(self) -> None:
        """The pod has gone from the API server: end it and write nothing more."""
        self._gone = True
        self._stop.set()
        self._dirty.set()
        asyncio.get_running_loop().call_later(1.0, self.kill)

    def kill(self) -> None:
        """End all processes at once."""
        for container in self.containers:
            container.kill()

    async def run(self) -> None:
        """Run the pod to its end and, if it is being deleted, remove it from the API server."""
        writer = asyncio.create_task(self._keep_status())
        tasks: list[asyncio.Task[Any]] = []
        try:
            if self.context.pod["metadata"].get("deletionTimestamp"):
                self._stop.set()
            life = asyncio.create_task(self._live(tasks))
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if self._stop.is_set():
                life.cancel()
                await self._end()
            await asyncio.gather(life, return_exceptions=True)
            await asyncio.gather(*tasks, return_exceptions=True)
            self._finished = True
            self.changed()
            await writer
            self._on_finished()
            if not self._gone:
                await self._await_deletion()
        finally:
            self.kill()
            for task in (writer, *tasks):
                task.cancel()
            await asyncio.gather(writer, *tasks, return_exceptions=True)
            self.context.close()
            shutil.rmtree(self.context.folder / "tmp", ignore_errors=True)

    async def _live(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Volumes, then init containers one after another, then all others until they have ended."""
        await self._mount()
        self._prepared = True
        self.changed()
        for container in self.containers:
            if container.role is Role.MAIN:
                continue
            tasks.append(container.begin())
            if container.role is Role.INIT:
                await container.finished.wait()
                if not isinstance(container.state, Terminated) or container.state.exit_code != 0:
                    return
            else:
                await container.started.wait()
        main = [container for container in self.containers if container.role is Role.MAIN]
        for container in main:
            if isinstance(container.state, Waiting):
                container.state = Waiting("ContainerCreating")
            tasks.append(container.begin())
        self.changed()
        for container in main:
            await container.finished.wait()
        sidecars = [container for container in self.containers if container.role is Role.SIDECAR]
        for container in reversed(sidecars):
            await container.stop(_grace(self.context.pod))

    async def _mount(self) -> None:
        while True:
            try:
                await self.context.volumes.prepare(self.context.address, self.context.host_address)
                return
            except MountError as error:
                self._events.warning(self.context.pod, "FailedMount", str(error))
            except (ApiError, *CONNECTION_ERRORS) as error:
                log.info("volumes of %s: %s", self.context.pod["metadata"]["name"], error)
            await asyncio.sleep(MOUNT_RETRY_SECONDS)

    async def _end(self) -> None:
        """Stop the main containers together, then the sidecars, last one first."""
        deadline = asyncio.get_running_loop().time() + _grace(self.context.pod)

        def left() -> float:
            return max(0.0, deadline - asyncio.get_running_loop().time())

        begun = [entry for entry in self.containers if entry.begun]
        others = [entry for entry in begun if entry.role is not Role.SIDECAR and not entry.finished.is_set()]
        await asyncio.gather(*(entry.stop(left()) for entry in others))
        for entry in reversed(begun):
            if entry.role is Role.SIDECAR and not entry.finished.is_set():
                await entry.stop(left())
        self.kill()

    async def _keep_status(self) -> None:
        while not self._gone:
            await self._dirty.wait()
            self._dirty.clear()
            last = self._finished
            await self._persist(self._write_status)
            if last:
                return

    async def _persist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Try a write until it succeeds or the pod has gone."""
        while not self._gone:
            try:
                await write()
                return
            except ApiError as error:
                if error.not_found or (error.conflict and await self._was_replaced()):
                    self.vanish()
                    return
                log.warning("pod %s: %s", self.context.pod["metadata"]["name"], error)
            except CONNECTION_ERRORS as error:
                log.info("pod %s: %s", self.context.pod["metadata"]["name"], error)
            await asyncio.sleep(WRITE_RETRY_SECONDS)

    async def _was_replaced(self) -> bool:
        """Whether the name stands for another pod by now."""
        meta = self.context.pod["metadata"]
        found = await self._client.find(PODS, meta["namespace"], meta["name"])
        return found is None or found["metadata"]["uid"] != meta["uid"]

    def status(self) -> Obj:
        """The pod's status at this moment."""
        view = PodView(
            pod=self.context.pod,
            containers=tuple(container.view() for container in self.containers),
            address=self.context.address,
            host_address=self.context.host_address,
            started=self._began,
            prepared=self._prepared,
            finished=self._finished,
        )
        return pod_status(view, self._conditions, now())

    async def _write_status(self) -> None:
        status = self.status()
        if status == self._written:
            return
        # A new condition list replaces the scheduler's; an Unschedulable reason of earlier times ends with it.
        await self._client.merge(PODS, self.context.pod, {"status": status}, "status")
        self._conditions = status["conditions"]
        self._written = status

    async def _await_deletion(self) -> None:
        """A finished pod stays until somebody deletes it."""
        await self._stop.wait()
        if self.context.pod["metadata"].get("deletionTimestamp"):
            await self._persist(self._remove)

    async def _remove(self) -> None:
        await self._client.delete(PODS, self.context.pod, grace=0)


def _grace(pod: Obj) -> float:
    seconds = pod["metadata"].get("deletionGracePeriodSeconds")
    if seconds is None:
        seconds = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return float(seconds)


def _containers_of(pod: Obj) -> list[tuple[Obj, Role]]:
    first = [
        (spec, Role.SIDECAR if spec.get("restartPolicy") == "Always" else Role.INIT)
        for spec in pod["spec"].get("initContainers") or ()
    ]
    return first + [(spec, Role.MAIN) for spec in pod["spec"]["containers"]]


def _restarts_so_far(status: Obj, name: str) -> int:
    """A container that ran under an earlier agent ended with it: its next run is a restart."""
    for section in ("containerStatuses", "initContainerStatuses"):
        for entry in status.get(section) or ():
            if entry["name"] == name:
                ran = bool(entry.get("containerID"))
                return int(entry.get("restartCount", 0)) + (1 if ran else 0)
    return 0
