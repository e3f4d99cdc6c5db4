"""The node agent: registers nodes, runs the pods bound to them, serves their logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shutil
import sys
from typing import Self

import aiohttp

from e2e.sandbox.controllers.client import (
    CONNECTION_ERRORS,
    PODS,
    Access,
    ApiClient,
    ApiError,
    Obj,
)
from e2e.sandbox.controllers.events import EventRecorder
from e2e.sandbox.controllers.informer import Informer
from e2e.sandbox.controllers.pods import is_finished

from .addresses import AddressPool
from .gpus import GpuTable
from .images import REPOSITORY_ROOT
from .node import SandboxNode
from .pod import PodWorker
from .pod_context import MARKER, POD_MARKER, PodContext
from .reaper import kill_marked
from .server import LogServer
from .settings import AgentSettings
from .volumes import PodVolumes

log = logging.getLogger(__name__)

COMPONENT = "sandbox-node-agent"


class NodeAgent:
    """Runs pods as local processes on simulated nodes `sandbox-node-0`, `sandbox-node-1`, ..."""

    def __init__(self, access: Access, settings: AgentSettings) -> None:
        self.settings = settings
        self._client = ApiClient(access, COMPONENT)
        self._pool = AddressPool(settings.pod_range)
        self._marker = secrets.token_hex(8)
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._reaper: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None
        self._nodes = {
            node.name: node
            for node in (
                SandboxNode(self._client, settings, number, self._pool.node_address(number))
                for number in range(settings.nodes)
            )
        }
        self._gpus = {name: GpuTable(name, settings.gpus) for name in self._nodes}
        self._events = {name: EventRecorder(self._client, COMPONENT, name) for name in self._nodes}
        self._server = LogServer(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start and wait until the nodes are registered and ready."""
        self._task = asyncio.create_task(self._run(), name="node agent")
        ready = asyncio.create_task(self._ready.wait())
        done, _ = await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if self._task in done:
            ready.cancel()
            await self._task

    async def stop(self) -> None:
        """End like a machine that is switched off: all processes are killed, the API server is told nothing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        await self._start_reaper()
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))
        informer = Informer(self._client, PODS)
        informer.add_handler(self._pod_changed)
        try:
            ports = await self._server.start({name: node.address for name, node in self._nodes.items()})
            async with asyncio.TaskGroup() as group:
                for name, node in self._nodes.items():
                    await node.register(ports[name])
                    group.create_task(node.keep_alive(), name=f"heartbeat {name}")
                    group.create_task(self._events[name].run(), name=f"events {name}")
                group.create_task(informer.run(), name="watch pods")
                group.create_task(self._follow_volumes(), name="volumes")
                await informer.synced.wait()
                self._remove_leftovers()
                self._ready.set()
        finally:
            await self._close()

    async def _follow_volumes(self) -> None:
        """Mounted ConfigMaps and Secrets follow their objects while pods run."""
        while True:
            await asyncio.sleep(self.settings.volume_sync)
            for worker, _ in tuple(self._workers.values()):
                context = worker.context
                with contextlib.suppress(ApiError, OSError, *CONNECTION_ERRORS):
                    await context.volumes.refresh(context.address, context.host_address)

    async def _start_reaper(self) -> None:
        self._reaper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "e2e.sandbox.node.reaper",
            f"{MARKER}={self._marker}",
            stdin=asyncio.subprocess.PIPE,
            cwd=REPOSITORY_ROOT,
            start_new_session=True,
        )

    async def _close(self) -> None:
        for worker, task in self._workers.values():
            worker.kill()
            task.cancel()
        await asyncio.gather(*(task for _, task in self._workers.values()), return_exceptions=True)
        kill_marked(f"{MARKER}={self._marker}")
        await self._server.stop()
        if self._http is not None:
            await self._http.close()
        await self._client.close()
        if self._reaper is not None and self._reaper.stdin is not None:
            self._reaper.stdin.close()
            await self._reaper.wait()

    def _remove_leftovers(self) -> None:
        """Folders of pods that are no more."""
        folder = self.settings.data_dir / "pods"
        for entry in folder.iterdir() if folder.is_dir() else ():
            if entry.name not in self._workers:
                shutil.rmtree(entry, ignore_errors=True)

    def workers(self) -> list[PodWorker]:
        """All pods on this agent's nodes."""
        return [worker for worker, _ in self._workers.values()]

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The pod of that name, or None."""
        for worker, _ in self._workers.values():
            meta = worker.context.pod["metadata"]
            if (meta["namespace"], meta["name"]) == (namespace, name):
                return worker
        return None

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            entry = self._workers.get((old or {})["metadata"]["uid"])
            if entry is not None:
                entry[0].vanish()
            return
        uid = new["metadata"]["uid"]
        if uid in self._workers:
            self._workers[uid][0].update(new)
        elif new["spec"].get("nodeName") in self._nodes:
            if not is_finished(new):
                self._admit(new)
            elif new["metadata"].get("deletionTimestamp"):
                task = asyncio.create_task(self._remove_finished(new))
                task.add_done_callback(lambda done: None)

    def _admit(self, pod: Obj) -> None:
        """Start a worker for a pod that has been bound to one of the nodes."""
        node = self._nodes[pod["spec"]["nodeName"]]
        table = self._gpus[node.name]
        uid = pod["metadata"]["uid"]
        try:
            indices = table.take(pod)
        except RuntimeError as error:
            task = asyncio.create_task(self._reject(pod, str(error)))
            task.add_done_callback(lambda done: None)
            return
        address = self._pool.take()
        folder = self.settings.data_dir / "pods" / uid
        folder.mkdir(parents=True, exist_ok=True)

        def changed() -> None:
            worker.changed()

        volumes = PodVolumes(
            self._client, pod, folder / "volumes", self.settings.data_dir / "claims", self.settings.tokens_file
        )
        context = PodContext(
            pod,
            address=address,
            host_address=node.address,
            folder=folder,
            volumes=volumes,
            gpus=indices,
            gpu_identity=table.identity,
            settings=self.settings,
            marker=self._marker,
            api_url=self._client.access.url,
            changed=changed,
        )
        if self._http is None:
            raise RuntimeError("the agent is not running")
        worker = PodWorker(context, self._client, self._events[node.name], self._http, lambda: table.give_back(pod))
        task = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        self._workers[uid] = (worker, task)
        task.add_done_callback(lambda done: self._pod_ended(uid, worker, done))

    def _pod_ended(self, uid: str, worker: PodWorker, task: asyncio.Task[None]) -> None:
        self._workers.pop(uid, None)
        # A process may have left its group; nothing of a pod outlives it.
        kill_marked(f"{POD_MARKER}={uid}")
        self._pool.give_back(worker.context.address)
        self._gpus[worker.context.pod["spec"]["nodeName"]].give_back(worker.context.pod)
        shutil.rmtree(worker.context.folder, ignore_errors=True)
        if not task.cancelled() and task.exception() is not None:
            log.error("pod %s failed", worker.context.pod["metadata"]["name"], exc_info=task.exception())

    async def _reject(self, pod: Obj, why: str) -> None:
        """What a kubelet does with a pod that does not fit: it fails at once."""
        message = f"Pod was rejected: Allocate failed due to {why}, which is unexpected"
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
        with contextlib.suppress(ApiError, *CONNECTION_ERRORS):
            await self._client.merge(PODS, pod, {"status": status}, "status")

    async def _remove_finished(self, pod: Obj) -> None:
        with contextlib.suppress(ApiError, *CONNECTION_ERRORS):
            await self._client.delete(PODS, pod, grace=0)
