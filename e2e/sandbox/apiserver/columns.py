"""The columns of built-in kinds' tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .kinds import dig
from .schema import JsonDict
from .selectors import as_text

NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `cell(obj, now)` gives its value. Priority 1 is shown with `-o wide` only."""

    name: str
    type: str
    cell: Callable[[JsonDict, datetime], Any]
    priority: int = 0
    description: str = ""


def _at(*path: str, default: Any = NONE) -> Callable[[JsonDict, datetime], Any]:
    def cell(obj: JsonDict, _: datetime) -> Any:
        found = dig(obj, *path)
        return default if found in (None, "") else found

    return cell


def _age(obj: JsonDict, now: datetime) -> str:
    from .tables import age

    return age(obj["metadata"].get("creationTimestamp"), now)


AGE = Column("Age", "string", _age)


def _listed(values: list[str]) -> str:
    return ",".join(values) if values else NONE


def _containers(obj: JsonDict, key: str, *path: str) -> str:
    return _listed([container.get(key, "") for container in dig(obj, *path) or ()])


def _ready(obj: JsonDict, _: datetime) -> str:
    return f"{dig(obj, 'status', 'readyReplicas') or 0}/{dig(obj, 'spec', 'replicas') or 0}"


def _template_columns(selector_description: str) -> tuple[Column, ...]:
    path = ("spec", "template", "spec", "containers")
    return (
        Column(
            "Containers",
            "string",
            lambda obj, _: _containers(obj, "name", *path),
            1,
            "Names of each container in the template.",
        ),
        Column(
            "Images",
            "string",
            lambda obj, _: _containers(obj, "image", *path),
            1,
            "Images referenced by each container in the template.",
        ),
        Column(
            "Selector", "string", lambda obj, _: as_text(dig(obj, "spec", "selector")) or NONE, 1, selector_description
        ),
    )


def _pod_ready(pod: JsonDict, _: datetime) -> str:
    statuses = dig(pod, "status", "containerStatuses") or []
    return f"{sum(bool(status.get('ready')) for status in statuses)}/{len(dig(pod, 'spec', 'containers') or [])}"


def _pod_status(pod: JsonDict, _: datetime) -> str:
    status = pod.get("status", {})
    reason = status.get("reason") or status.get("phase", "")
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            signal = ended.get("signal")
            reason = ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}")
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return str(reason)


def _pod_restarts(pod: JsonDict, now: datetime) -> str:
    from .tables import age

    statuses = dig(pod, "status", "containerStatuses") or []
    count = sum(status.get("restartCount", 0) for status in statuses)
    ends = [dig(status, "lastState", "terminated", "finishedAt") for status in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _service_ports(service: JsonDict, _: datetime) -> str:
    parts = []
    for port in dig(service, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        parts.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return _listed(parts)


def _external_address(service: JsonDict, _: datetime) -> str:
    ingress = dig(service, "status", "loadBalancer", "ingress") or []
    found = [entry.get("ip") or entry.get("hostname", "") for entry in ingress] + (
        dig(service, "spec", "externalIPs") or []
    )
    if not found and dig(service, "spec", "type") == "LoadBalancer":
        return "<pending>"
    return _listed(found)


def _node_status(node: JsonDict, _: datetime) -> str:
    ready = next((c for c in dig(node, "status", "conditions") or () if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return text + (",SchedulingDisabled" if dig(node, "spec", "unschedulable") else "")


def _budget_amount(key: str) -> Callable[[JsonDict, datetime], Any]:
    def cell(budget: JsonDict, _: datetime) -> str:
        found = dig(budget, "spec", key)
        return "N/A" if found is None else str(found)

    return cell


def _event_seen(event: JsonDict, now: datetime) -> str:
    from .tables import age

    return age(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"), now)


def _slice_ports(endpoint_slice: JsonDict, _: datetime) -> str:
    return _listed([str(port.get("port")) for port in endpoint_slice.get("ports") or ()])


def _slice_addresses(endpoint_slice: JsonDict, _: datetime) -> str:
    return _listed([address for endpoint in endpoint_slice.get("endpoints") or () for address in endpoint["addresses"]])


def _reference(autoscaler: JsonDict, _: datetime) -> str:
    target = dig(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind')}/{target.get('name')}"


def _data_count(*keys: str) -> Callable[[JsonDict, datetime], int]:
    return lambda obj, _: sum(len(obj.get(key) or ()) for key in keys)


def _role_reference(binding: JsonDict, _: datetime) -> str:
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


_CREATED = Column("Created At", "date", lambda obj, _: obj["metadata"].get("creationTimestamp"))
_DEPLOYMENT = (
    Column("Ready", "string", _ready, description="Number of the pod with ready state"),
    Column(
        "Up-to-date",
        "string",
        _at("status", "updatedReplicas", default=0),
        description="Total number of non-terminating pods targeted by this deployment that have the desired template "
        "spec.",
    ),
    Column(
        "Available",
        "string",
        _at("status", "availableReplicas", default=0),
        description="Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by "
        "this deployment.",
    ),
    AGE,
    *_template_columns(
        "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by "
        "this deployment. It must match the pod template's labels."
    ),
)
_REPLICA_SET = (
    Column("Desired", "integer", _at("spec", "replicas", default=0)),
    Column("Current", "integer", _at("status", "replicas", default=0)),
    Column("Ready", "integer", _at("status", "readyReplicas", default=0)),
    AGE,
    *_template_columns("Selector is a label query over pods that should match the replica count."),
)
_POD = (
    Column("Ready", "string", _pod_ready),
    Column("Status", "string", _pod_status),
    Column("Restarts", "string", _pod_restarts),
    AGE,
    Column("IP", "string", _at("status", "podIP"), 1),
    Column("Node", "string", _at("spec", "nodeName"), 1),
    Column("Nominated Node", "string", _at("status", "nominatedNodeName"), 1),
    Column("Readiness Gates", "string", lambda _obj, _now: NONE, 1),
)
_SERVICE = (
    Column("Type", "string", _at("spec", "type")),
    Column("Cluster-IP", "string", _at("spec", "clusterIP")),
    Column("External-IP", "string", _external_address),
    Column("Port(s)", "string", _service_ports),
    AGE,
    Column(
        "Selector",
        "string",
        lambda obj, _: _listed(
            [f"{key}={value}" for key, value in sorted((dig(obj, "spec", "selector") or {}).items())]
        ),
        1,
    ),
)
_NODE = (
    Column("Status", "string", _node_status),
    Column("Roles", "string", lambda _obj, _now: NONE),
    AGE,
    Column("Version", "string", _at("status", "nodeInfo", "kubeletVersion", default="")),
)
_EVENT = (
    Column("Last Seen", "string", _event_seen),
    Column("Type", "string", _at("type", default="")),
    Column("Reason", "string", _at("reason", default="")),
    Column(
        "Object",
        "string",
        lambda obj, _: f"{dig(obj, 'involvedObject', 'kind') or ''}/{dig(obj, 'involvedObject', 'name') or ''}".lower(),
    ),
    Column("Message", "string", lambda obj, _: str(obj.get("message", "")).strip()),
)
BUILT_IN: dict[tuple[str, str], tuple[Column, ...]] = {
    ("apps", "Deployment"): _DEPLOYMENT,
    ("apps", "ReplicaSet"): _REPLICA_SET,
    ("apps", "ControllerRevision"): (Column("Revision", "integer", _at("revision", default=0)), AGE),
    ("", "Pod"): _POD,
    ("", "Service"): _SERVICE,
    ("", "Node"): _NODE,
    ("", "Event"): _EVENT,
    ("", "Namespace"): (Column("Status", "string", _at("status", "phase", default="")), AGE),
    ("", "ConfigMap"): (Column("Data", "string", _data_count("data", "binaryData")), AGE),
    ("", "Secret"): (
        Column("Type", "string", _at("type", default="")),
        Column("Data", "string", _data_count("data")),
        AGE,
    ),
    ("", "ServiceAccount"): (AGE,),
    ("", "PersistentVolumeClaim"): (Column("Status", "string", _at("status", "phase", default="")), AGE),
    ("", "ResourceQuota"): (AGE,),
    ("policy", "PodDisruptionBudget"): (
        Column("Min Available", "string", _budget_amount("minAvailable")),
        Column("Max Unavailable", "string", _budget_amount("maxUnavailable")),
        Column("Allowed Disruptions", "integer", _at("status", "disruptionsAllowed", default=0)),
        AGE,
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (
        Column("Reference", "string", _reference),
        Column("MinPods", "string", _at("spec", "minReplicas", default="<unset>")),
        Column("MaxPods", "integer", _at("spec", "maxReplicas", default=0)),
        Column("Replicas", "integer", _at("status", "currentReplicas", default=0)),
        AGE,
    ),
    ("discovery.k8s.io", "EndpointSlice"): (
        Column("AddressType", "string", _at("addressType", default="")),
        Column("Ports", "string", _slice_ports),
        Column("Endpoints", "string", _slice_addresses),
        AGE,
    ),
    ("coordination.k8s.io", "Lease"): (Column("Holder", "string", _at("spec", "holderIdentity", default="")), AGE),
    ("rbac.authorization.k8s.io", "RoleBinding"): (Column("Role", "string", _role_reference), AGE),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): (Column("Role", "string", _role_reference), AGE),
    ("rbac.authorization.k8s.io", "Role"): (_CREATED,),
    ("rbac.authorization.k8s.io", "ClusterRole"): (_CREATED,),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): (_CREATED,),
}
