"""Simulated controllers and nodes: Deployments have pods that become ready, owners take their objects with them."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from slipway.kube.kinds import CHILDREN, DEPLOYMENT, MODEL_DEPLOYMENT, POD, Kind

from e2e.faults.api import Api, Obj
from e2e.sandbox.apiserver.store import Change, ChangeType

__all__ = ["Nodes", "is_ready", "stamp"]

SPEC: Obj = {
    "nodeName": "n",
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "containers": [
        {
            "name": "server",
            "image": "simulated:1",
            "imagePullPolicy": "IfNotPresent",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ],
}
"""Of every pod, with all defaults: who patches a pod may change none of them."""
COLLECTION = 0.5
"""Seconds until the objects of a deleted owner are deleted."""


def stamp(wall: float) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_ready(pod: Obj) -> bool:
    """Whether a Service sends requests there."""
    conditions = pod["status"].get("conditions") or ()
    ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


@dataclass
class Nodes:
    """Follows the Deployments of one namespace."""

    api: Api
    namespace: str
    wall: Callable[[], float]
    start_seconds: float = 4.0
    """Until a pod is ready."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _listening: list[Callable[[], None]] = field(default_factory=list)

    def start(self) -> None:
        """Begin to follow."""
        for kind in (MODEL_DEPLOYMENT, DEPLOYMENT, POD):
            self._listening.append(self.api.listen(kind, self._changed(kind)))

    def stop(self) -> None:
        """End."""
        while self._listening:
            self._listening.pop()()
        for task in self._tasks:
            task.cancel()

    def _changed(self, kind: Kind) -> Callable[[Change], None]:
        def changed(change: Change) -> None:
            obj = change.new.obj
            if obj["metadata"].get("namespace") != self.namespace:
                return
            if change.type is ChangeType.DELETED:
                self._later(COLLECTION, lambda: self._collect(obj["metadata"]["uid"]))
            elif kind == DEPLOYMENT:
                self._later(0.05, lambda: self._follow(obj["metadata"]["name"]))
            elif kind == POD and obj["metadata"].get("deletionTimestamp"):
                self._later(0.05, lambda: self._end(obj["metadata"]["name"]))

        return changed

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            action()

        task = asyncio.get_running_loop().create_task(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _follow(self, name: str) -> None:
        deployment = self.api.find(DEPLOYMENT, self.namespace, name)
        if deployment is None:
            return
        present = {pod["metadata"]["name"]: pod for pod in self.api.objects(POD, self.namespace) if _of(pod, name)}
        wanted = [f"{name}-{number}" for number in range(deployment["spec"]["replicas"])]
        for pod_name in wanted:
            if pod_name not in present:
                self._begin(deployment, pod_name)
        for pod_name, pod in present.items():
            if pod_name not in wanted:
                self.api.drop(POD, pod)

    def _begin(self, deployment: Obj, name: str) -> None:
        meta = deployment["metadata"]
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"]}
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        pod: Obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": self.namespace,
                "name": name,
                "uid": str(uuid.uuid4()),
                "labels": dict(labels),
                "creationTimestamp": stamp(self.wall()),
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": SPEC,
            "status": {"phase": "Pending"},
        }
        self.api.put(POD, pod)
        self._later(self.start_seconds, lambda: self._ready(name, pod["metadata"]["uid"]))

    def _ready(self, name: str, uid: str) -> None:
        pod = self.api.find(POD, self.namespace, name)
        if pod is None or pod["metadata"]["uid"] != uid or pod["metadata"].get("deletionTimestamp"):
            return
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.wall())}
        status: dict[str, Any] = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}
        self.api.put(POD, {**pod, "status": status})

    def _end(self, name: str) -> None:
        pod = self.api.find(POD, self.namespace, name)
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            self.api.drop(POD, pod)

    def _collect(self, uid: str) -> None:
        """Delete what a deleted object owned, and make its Deployment's pods anew."""
        for kind in (*CHILDREN, POD):
            for obj in self._stored(kind):
                owners = obj["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == uid for owner in owners):
                    self.api.drop(kind, obj)
        for deployment in self._stored(DEPLOYMENT):
            self._follow(deployment["metadata"]["name"])

    def _stored(self, kind: Kind) -> list[Obj]:
        if not self.api.serves(kind):
            return []
        return self.api.objects(kind, self.namespace)


def _of(pod: Obj, deployment: str) -> bool:
    return any(owner["name"] == deployment for owner in pod["metadata"].get("ownerReferences") or ())
