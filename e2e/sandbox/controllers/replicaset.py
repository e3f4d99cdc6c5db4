"""The ReplicaSet controller: as many pods as wanted, and which ones go first."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from datetime import datetime

from . import pods
from .client import PODS, REPLICA_SETS, ApiClient, ApiError, Obj
from .control_loop import ControlLoop
from .events import EventRecorder
from .informer import Informer, Key, controller_of, key_of
from .ownership import claim, reference_to
from .selectors import matches
from .times import from_text, now, seconds_since, to_text

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
BURST = 500


class ReplicaSetController:
    """Creates and deletes pods so that each ReplicaSet has its number, and writes its status."""

    def __init__(self, client: ApiClient, replica_sets: Informer, pod_cache: Informer, events: EventRecorder) -> None:
        self._client = client
        self._replica_sets = replica_sets
        self._pods = pod_cache
        self._events = events
        self.loop: ControlLoop[Key] = ControlLoop("replicaset", self.reconcile)
        replica_sets.add_handler(self._replica_set_changed)
        pod_cache.add_handler(self._pod_changed)

    def _replica_set_changed(self, old: Obj | None, new: Obj | None) -> None:
        self.loop.queue.add(key_of(new or old or {}))

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            controller = controller_of(pod)
            if controller is not None:
                if controller["kind"] == "ReplicaSet":
                    self.loop.queue.add((pod["metadata"]["namespace"], controller["name"]))
            elif pod is new:
                self._offer_orphan(pod)

    def _offer_orphan(self, pod: Obj) -> None:
        for candidate in self._replica_sets.in_namespace(pod["metadata"]["namespace"]):
            if matches(candidate["spec"].get("selector"), pod["metadata"].get("labels")):
                self.loop.queue.add(key_of(candidate))

    async def reconcile(self, key: Key) -> None:
        """Bring one ReplicaSet's pods and status to what they should be."""
        replica_set = self._replica_sets.get(*key)
        if replica_set is None:
            return
        mine = await claim(self._client, PODS, replica_set, self._pods)
        active = [pod for pod in mine if pods.is_active(pod)]
        failure: ApiError | None = None
        if not replica_set["metadata"].get("deletionTimestamp"):
            try:
                active = await self._manage(replica_set, active)
            except ApiError as error:
                failure = error
        await self._write_status(replica_set, active, failure)
        if failure is not None:
            raise failure

    async def _manage(self, replica_set: Obj, active: list[Obj]) -> list[Obj]:
        difference = replica_set["spec"].get("replicas", 1) - len(active)
        if difference > 0:
            created = await self._create_pods(replica_set, min(difference, BURST))
            return active + created
        if difference < 0:
            victims = self._victims(replica_set, active, min(-difference, BURST))
            await asyncio.gather(*(self._delete_pod(replica_set, pod) for pod in victims))
            gone = {pod["metadata"]["uid"] for pod in victims}
            return [pod for pod in active if pod["metadata"]["uid"] not in gone]
        return active

    async def _create_pods(self, replica_set: Obj, count: int) -> list[Obj]:
        """Slow start: 1, 2, 4, ... at a time, so that a refusal is met once and not a hundred times."""
        created: list[Obj] = []
        batch = 1
        while len(created) < count:
            batch = min(batch, count - len(created))
            results = await asyncio.gather(
                *(self._create_pod(replica_set) for _ in range(batch)), return_exceptions=True
            )
            created += [result for result in results if isinstance(result, dict)]
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            batch *= 2
        return created

    async def _create_pod(self, replica_set: Obj) -> Obj:
        template = replica_set["spec"]["template"]
        meta = template.get("metadata") or {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": replica_set["metadata"]["name"] + "-",
                "namespace": replica_set["metadata"]["namespace"],
                "ownerReferences": [reference_to(replica_set)],
                **{name: meta[name] for name in ("labels", "annotations", "finalizers") if meta.get(name)},
            },
            "spec": template["spec"],
        }
        try:
            created = await self._client.create(PODS, pod)
        except ApiError as error:
            self._events.warning(replica_set, "FailedCreate", f"Error creating: {error.message}")
            raise
        self._pods.observe(created)
        self._events.normal(replica_set, "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return created

    async def _delete_pod(self, replica_set: Obj, pod: Obj) -> None:
        try:
            answer = await self._client.delete(PODS, pod)
        except ApiError as error:
            if error.not_found:
                return
            raise
        if answer.get("kind") == "Pod":
            self._pods.observe(answer)
        self._events.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def _victims(self, replica_set: Obj, active: list[Obj], count: int) -> list[Obj]:
        """Pods to delete; siblings of the same Deployment on a node make its pods go first."""
        siblings = Counter(
            pod["spec"].get("nodeName", "") for pod in self._related_pods(replica_set) if pods.is_active(pod)
        )
        moment = now()
        return sorted(active, key=lambda pod: _victim_order(pod, siblings, moment))[:count]

    def _related_pods(self, replica_set: Obj) -> list[Obj]:
        owner = controller_of(replica_set)
        family = self._replica_sets.owned_by(owner["uid"]) if owner else [replica_set]
        return [pod for member in family for pod in self._pods.owned_by(member["metadata"]["uid"])]

    async def _write_status(self, replica_set: Obj, active: list[Obj], failure: ApiError | None) -> None:
        status = self._status(replica_set, active, failure)
        known = replica_set.get("status") or {}
        if all(known.get(name) == value for name, value in status.items()):
            return
        patch = {"status": {name: value or None if name != "replicas" else value for name, value in status.items()}}
        self._replica_sets.observe(await self._client.merge(REPLICA_SETS, replica_set, patch, "status"))

    def _status(self, replica_set: Obj, active: list[Obj], failure: ApiError | None) -> Obj:
        moment = now()
        wait_for = int(replica_set["spec"].get("minReadySeconds") or 0)
        template_labels = (replica_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
        waits = [pods.seconds_until_available(pod, wait_for, moment) for pod in active]
        pending = [wait for wait in waits if wait]
        if pending:
            self.loop.queue.add_after(key_of(replica_set), min(pending) + 0.01)
        labelled = sum(matches({"matchLabels": template_labels}, pod["metadata"].get("labels")) for pod in active)
        return {
            "replicas": len(active),
            "fullyLabeledReplicas": labelled or None,
            "readyReplicas": sum(pods.is_ready(pod) for pod in active) or None,
            "availableReplicas": sum(wait == 0 for wait in waits) or None,
            "observedGeneration": replica_set["metadata"].get("generation"),
            "conditions": _failure_conditions(replica_set, failure),
        }


def _failure_conditions(replica_set: Obj, failure: ApiError | None) -> list[Obj] | None:
    known = (replica_set.get("status") or {}).get("conditions") or []
    others = [entry for entry in known if entry["type"] != "ReplicaFailure"]
    if failure is None:
        return others or None
    old = pods.condition(replica_set, "ReplicaFailure")
    since = old["lastTransitionTime"] if old is not None else to_text(now())
    entry = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": failure.message,
        "lastTransitionTime": since,
    }
    return [*others, entry]


def _victim_order(pod: Obj, siblings: Counter[str], moment: datetime) -> tuple[float, ...]:
    """Kubernetes' order: unassigned, pending, not ready, cheap, crowded, lately ready, restarted, young."""
    node = pod["spec"].get("nodeName", "")
    ready = pods.is_ready(pod)
    ready_condition = pods.condition(pod, "Ready") or {}
    ready_for = seconds_since(ready_condition.get("lastTransitionTime"), moment) if ready else 0.0
    age = (moment - from_text(pod["metadata"]["creationTimestamp"])).total_seconds()
    return (
        1 if node else 0,
        {"Pending": 0, "Unknown": 1}.get(pods.phase(pod), 2),
        1 if ready else 0,
        _deletion_cost(pod),
        -siblings[node],
        _magnitude(ready_for),
        -pods.restarts(pod),
        _magnitude(age),
    )


def _deletion_cost(pod: Obj) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _magnitude(seconds: float) -> int:
    """Kubernetes compares ages by magnitude (LogarithmicScaleDown), so that old age is no shield."""
    return int(math.log2(seconds)) if seconds >= 1 else 0
