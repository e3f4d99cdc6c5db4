"""A hollow node: it makes the pods of Deployments ready without running anything, as kubemark's kubelets do.

SIMULATED: there are no model servers. One small HTTP server stands for all of them and answers the operator's probes.
It replaces the Deployment controller, the scheduler and the kubelet, so that the load is the operator's and not theirs.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable

from aiohttp import web

from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.controllers.client import DEPLOYMENTS, PODS, SERVICE_ACCOUNTS, ApiClient, ApiError, Obj
from e2e.sandbox.node.namespace import is_inside

__all__ = ["HollowCluster", "HollowNode"]

HOST = "10.244.77.1" if is_inside() else "127.77.0.1"
"""Of all pods; a real API server takes no address of 127.0.0.0/8, and a network namespace has others."""
PORT = 8080
WRITERS = 8
"""Deployments that are looked after at a time."""
_MODEL = re.compile(r"/v2/models/(?P<model>[^/]+)(/versions/[^/]+)?(?P<ready>/ready)?")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class HollowCluster(Sandbox):
    """An API server with Slipway's and Istio's definitions, and nothing else."""

    async def _start_controllers(self) -> None:
        """The hollow node stands in for them."""

    async def _start_node(self) -> None:
        """The hollow node is one."""


class HollowNode:
    """Follows the Deployments of one namespace; ``changed`` is called with each as it comes."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._deployments: dict[str, Obj] = {}
        self._pods: dict[str, list[Obj]] = {}
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None
        self.changed: Callable[[Obj], None] = lambda _: None

    async def __aenter__(self) -> "HollowNode":
        application = web.Application()
        application.router.add_get("/{path:.*}", _answer)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, PORT).start()
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        with contextlib.suppress(ApiError):
            # A real API server admits no pod without it, and no controller makes it here.
            await self._client.create(
                SERVICE_ACCOUNTS, {**account, "metadata": {"name": "default", "namespace": self._namespace}}
            )
        listed = await self._client.list_all(DEPLOYMENTS, namespace=self._namespace)
        self._tasks = [asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))]
        self._tasks += [asyncio.create_task(self._work()) for _ in range(WRITERS)]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def ready(self) -> int:
        """Deployments whose pods are all ready."""
        return sum(_is_ready(one) for one in self._deployments.values())

    async def _follow(self, version: str) -> None:
        while True:
            async for event in self._client.watch(DEPLOYMENTS, version, namespace=self._namespace):
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] == "BOOKMARK":
                    continue
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    self._deployments.pop(name, None)
                else:
                    self._deployments[name] = event["object"]
                self.changed(event["object"])
                if name not in self._waiting:
                    self._waiting.add(name)
                    self._due.put_nowait(name)

    async def _work(self) -> None:
        while True:
            name = await self._due.get()
            self._waiting.discard(name)
            try:
                await self._settle(name)
            except ApiError as error:
                if not (error.conflict or error.not_found):
                    raise

    async def _settle(self, name: str) -> None:
        """Bring the number of pods, and then the Deployment's status, to what the Deployment asks for."""
        deployment = self._deployments.get(name)
        wanted = 0 if deployment is None else int(deployment["spec"].get("replicas", 1))
        pods = self._pods.setdefault(name, [])
        while deployment is not None and len(pods) < wanted:
            pods.append(await self._start(deployment, len(pods)))
        while len(pods) > wanted:
            gone = pods.pop()
            with contextlib.suppress(ApiError):
                await self._client.delete(PODS, gone, grace=0)
        if deployment is not None and not _is_ready(deployment):
            await self._client.merge(DEPLOYMENTS, deployment, {"status": _status(deployment, wanted)}, "status")

    async def _start(self, deployment: Obj, number: int) -> Obj:
        template, meta = deployment["spec"]["template"], deployment["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{meta['uid'][:5]}-{number}",
                "namespace": meta["namespace"],
                "labels": template["metadata"].get("labels", {}),
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {**template["spec"], "nodeName": "hollow"},
        }
        created = await self._client.create(PODS, pod)
        return await self._client.merge(PODS, created, {"status": _pod_status(created)}, "status")


def _is_ready(deployment: Obj) -> bool:
    status, wanted = deployment.get("status") or {}, int(deployment["spec"].get("replicas", 1))
    seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return seen and int(status.get("readyReplicas") or 0) == wanted


def _status(deployment: Obj, replicas: int) -> Obj:
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {"observedGeneration": deployment["metadata"]["generation"], **dict.fromkeys(counts, replicas)}


def _pod_status(pod: Obj) -> Obj:
    now = _now()
    conditions = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": HOST,
        "podIPs": [{"ip": HOST}],
        "hostIP": HOST,
        "startTime": now,
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": now} for name in conditions],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


async def _answer(request: web.Request) -> web.Response:
    """Readiness and metadata of whatever model is asked for."""
    found = _MODEL.fullmatch(request.path)
    if found is None or found["ready"]:
        return web.json_response({})
    tensor = {"datatype": "FP32", "shape": [-1, 16]}
    return web.json_response(
        {
            "name": found["model"],
            "versions": ["v1"],
            "platform": "hollow",
            "inputs": [{"name": "input", **tensor}],
            "outputs": [{"name": "output", **tensor}],
        }
    )
