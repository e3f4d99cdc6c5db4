"""The scheduler: gives each pod a node where it fits, or says why none fits."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal

from . import pods
from .client import CLAIMS, PODS, ApiClient, ApiError, Obj
from .control_loop import ControlLoop
from .events import EventRecorder
from .informer import Informer, Key, key_of
from .quantities import parse_quantity, pod_requests
from .selectors import expression_matches
from .times import now, to_text

RETRY_SECONDS = 30.0


class Scheduler:
    """Binds pods to nodes by capacity, taints, selectors and affinity; one at a time, so that none is counted twice."""

    def __init__(self, client: ApiClient, pod_cache: Informer, nodes: Informer, events: EventRecorder) -> None:
        self._client = client
        self._pods = pod_cache
        self._nodes = nodes
        self._events = events
        self._assumed: dict[str, str] = {}
        self.loop: ControlLoop[Key] = ControlLoop("scheduler", self.reconcile, workers=1)
        pod_cache.add_handler(self._pod_changed)
        nodes.add_handler(self._node_changed)

    def _pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None and not new["spec"].get("nodeName"):
            self.loop.queue.add(key_of(new))
        if new is not None and new["spec"].get("nodeName"):
            self._assumed.pop(new["metadata"]["uid"], None)
        left = new is None or (pods.is_finished(new) and old is not None and not pods.is_finished(old))
        if left and old is not None:
            self._assumed.pop(old["metadata"]["uid"], None)
            self._retry_all()

    def _node_changed(self, old: Obj | None, new: Obj | None) -> None:
        if old is None or new is None or _node_facts(old) != _node_facts(new):
            self._retry_all()

    def _retry_all(self) -> None:
        waiting = [pod for pod in self._pods.all() if self._is_waiting(pod)]
        for pod in sorted(waiting, key=_queue_order):
            self.loop.queue.add(key_of(pod))

    def _is_waiting(self, pod: Obj) -> bool:
        return (
            not pod["spec"].get("nodeName")
            and pod["metadata"]["uid"] not in self._assumed
            and not pod["spec"].get("schedulingGates")
            and pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
            and pods.is_active(pod)
        )

    async def reconcile(self, key: Key) -> None:
        """Bind one pod, or mark it unschedulable."""
        pod = self._pods.get(*key)
        if pod is None or not self._is_waiting(pod):
            return
        missing = await self._missing_claim(pod)
        if missing:
            await self._refuse(pod, f"0/{len(self._nodes.all())} nodes are available: {missing}.")
            return
        used = self._used()
        reasons: Counter[str] = Counter()
        fitting = []
        for node in self._nodes.all():
            objections = _objections(pod, node, used[node["metadata"]["name"]])
            if objections:
                reasons.update(objections)
            else:
                fitting.append(node)
        if not fitting:
            await self._refuse(pod, _explain(len(self._nodes.all()), reasons))
            return
        chosen = max(fitting, key=lambda node: _score(pod, node, used[node["metadata"]["name"]]))
        await self._bind(pod, chosen["metadata"]["name"])

    def _used(self) -> dict[str, Counter[str]]:
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for pod in self._pods.all():
            node = pod["spec"].get("nodeName") or self._assumed.get(pod["metadata"]["uid"])
            if node and not pods.is_finished(pod):
                used[node].update(pod_requests(pod))
        return used

    async def _missing_claim(self, pod: Obj) -> str:
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and await self._client.find(CLAIMS, pod["metadata"]["namespace"], name) is None:
                return f'persistentvolumeclaim "{name}" not found'
        return ""

    async def _bind(self, pod: Obj, node: str) -> None:
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._assumed[meta["uid"]] = node
        try:
            await self._client.request("POST", PODS.path_of(pod, "binding"), binding)
        except BaseException as error:
            self._assumed.pop(meta["uid"], None)
            if isinstance(error, ApiError) and (error.not_found or error.conflict):
                return
            raise
        text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._events.normal(pod, "Scheduled", text)

    async def _refuse(self, pod: Obj, message: str) -> None:
        self.loop.queue.add_after(key_of(pod), RETRY_SECONDS)
        known = pods.condition(pod, "PodScheduled")
        if known is not None and known["status"] == "False" and known.get("message") == message:
            return
        since = known["lastTransitionTime"] if known and known["status"] == "False" else to_text(now())
        others = [c for c in (pod.get("status") or {}).get("conditions") or () if c["type"] != "PodScheduled"]
        entry = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": since,
        }
        patch = {"status": {"conditions": [*others, entry]}}
        self._pods.observe(await self._client.merge(PODS, pod, patch, "status"))
        self._events.warning(pod, "FailedScheduling", message)


def _queue_order(pod: Obj) -> tuple[int, str, str]:
    return (-int(pod["spec"].get("priority") or 0), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"])


def _node_facts(node: Obj) -> tuple[object, ...]:
    status = node.get("status") or {}
    ready = pods.condition(node, "Ready") or {}
    return (node["spec"], node["metadata"].get("labels"), status.get("allocatable"), ready.get("status"))


def _explain(count: int, reasons: Counter[str]) -> str:
    """The sentence Kubernetes writes, reasons in alphabetical order."""
    if not count:
        return "no nodes available to schedule pods"
    parts = sorted(f"{number} {reason}" for reason, number in reasons.items())
    head = f"0/{count} nodes are available: {', '.join(parts)}."
    starved = sum(number for reason, number in reasons.items() if reason.startswith("Insufficient"))
    why = "No preemption victims found for incoming pod" if starved else "Preemption is not helpful for scheduling"
    return f"{head} preemption: 0/{count} nodes are available: {count} {why}."


def _objections(pod: Obj, node: Obj, used: Counter[str]) -> list[str]:
    ready = pods.condition(node, "Ready")
    if ready is None or ready["status"] != "True":
        return ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]
    if node["spec"].get("unschedulable") and not _tolerates(pod, "node.kubernetes.io/unschedulable", "", "NoSchedule"):
        return ["node(s) were unschedulable"]
    for taint in node["spec"].get("taints") or ():
        blocks = taint["effect"] in ("NoSchedule", "NoExecute")
        if blocks and not _tolerates(pod, taint["key"], taint.get("value", ""), taint["effect"]):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    objections = []
    for name, amount in pod_requests(pod).items():
        capacity = parse_quantity(allocatable.get(name, 0))
        if amount and used[name] + amount > capacity:
            objections.append("Too many pods" if name == "pods" else f"Insufficient {name}")
    return objections


def _tolerates(pod: Obj, key: str, value: str, effect: str) -> bool:
    for toleration in pod["spec"].get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != effect:
            continue
        if toleration.get("key") and toleration["key"] != key:
            continue
        if toleration.get("operator", "Equal") == "Exists" or toleration.get("value", "") == value:
            return True
    return False


def _selected(pod: Obj, node: Obj) -> bool:
    labels = node["metadata"].get("labels") or {}
    for name, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(name) != value:
            return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(expression_matches(part, labels) for part in term.get("matchExpressions") or ())
        and all(expression_matches(part, fields) for part in term.get("matchFields") or ())
        for term in required["nodeSelectorTerms"]
        if term.get("matchExpressions") or term.get("matchFields")
    )


def _score(pod: Obj, node: Obj, used: Counter[str]) -> Decimal:
    """The share left free on the resource that would be scarcest."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    shares = []
    for name, amount in pod_requests(pod).items():
        capacity = parse_quantity(allocatable.get(name, 0))
        if capacity:
            shares.append(1 - (used[name] + amount) / capacity)
    return min(shares, default=Decimal(0))
