"""The columns of built-in kinds' tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from . import cells
from .kinds import dig
from .schema import JsonDict
from .selectors import as_text


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `cell(obj, now)` gives its value. Priority 1 is shown with `-o wide` only.

    It is described by `description` or, as `Type.field`, by the published description of a field.
    """

    name: str
    type: str
    cell: Callable[[JsonDict, datetime], Any]
    priority: int = 0
    description: str = ""
    doc: str = ""
    format: str = ""


AGE = Column("Age", "string", cells.age_of, doc="meta.v1.ObjectMeta.creationTimestamp")
NAME = Column("Name", "string", lambda obj, _: obj["metadata"]["name"], doc="meta.v1.ObjectMeta.name", format="name")


def _template_columns(selector_doc: str) -> tuple[Column, ...]:
    path = ("spec", "template", "spec", "containers")
    named, imaged = "Names of each container in the template.", "Images referenced by each container in the template."
    return (
        Column("Containers", "string", lambda obj, _: cells.containers(obj, "name", *path), 1, named),
        Column("Images", "string", lambda obj, _: cells.containers(obj, "image", *path), 1, imaged),
        Column(
            "Selector",
            "string",
            lambda obj, _: as_text(dig(obj, "spec", "selector")) or cells.NONE,
            1,
            doc=selector_doc,
        ),
    )


def _binding_columns(kind: str) -> tuple[Column, ...]:
    label = kind[0].lower() + kind[1:]
    return (
        NAME,
        Column("Role", "string", cells.role_reference, doc=f"rbac.v1.{kind}.roleRef"),
        AGE,
        Column("Users", "string", cells.subjects("User"), 1, f"Users in the {label}"),
        Column("Groups", "string", cells.subjects("Group"), 1, f"Groups in the {label}"),
        Column("ServiceAccounts", "string", cells.subjects("ServiceAccount"), 1, f"ServiceAccounts in the {label}"),
    )


CREATED = (
    NAME,
    Column(
        "Created At",
        "date",
        lambda obj, _: obj["metadata"].get("creationTimestamp"),
        doc="meta.v1.ObjectMeta.creationTimestamp",
    ),
)
_DEPLOYMENT = (
    NAME,
    Column("Ready", "string", cells.ready, description="Number of the pod with ready state"),
    Column(
        "Up-to-date",
        "string",
        cells.at("status", "updatedReplicas", default=0),
        doc="apps.v1.DeploymentStatus.updatedReplicas",
    ),
    Column(
        "Available",
        "string",
        cells.at("status", "availableReplicas", default=0),
        doc="apps.v1.DeploymentStatus.availableReplicas",
    ),
    AGE,
    *_template_columns("apps.v1.DeploymentSpec.selector"),
)
_REPLICA_SET = (
    NAME,
    Column("Desired", "integer", cells.at("spec", "replicas", default=0), doc="apps.v1.ReplicaSetSpec.replicas"),
    Column("Current", "integer", cells.at("status", "replicas", default=0), doc="apps.v1.ReplicaSetStatus.replicas"),
    Column(
        "Ready", "integer", cells.at("status", "readyReplicas", default=0), doc="apps.v1.ReplicaSetStatus.readyReplicas"
    ),
    AGE,
    *_template_columns("apps.v1.ReplicaSetSpec.selector"),
)
_POD = (
    NAME,
    Column(
        "Ready",
        "string",
        cells.pod_ready,
        description="The aggregate readiness state of this pod for accepting traffic.",
    ),
    Column("Status", "string", cells.pod_status, description="The aggregate status of the containers in this pod."),
    Column(
        "Restarts",
        "string",
        cells.pod_restarts,
        description="The number of times the containers in this pod have been restarted and when the last container in "
        "this pod has restarted.",
    ),
    AGE,
    Column("IP", "string", cells.at("status", "podIP"), 1, doc="core.v1.PodStatus.podIP"),
    Column("Node", "string", cells.at("spec", "nodeName"), 1, doc="core.v1.PodSpec.nodeName"),
    Column(
        "Nominated Node",
        "string",
        cells.at("status", "nominatedNodeName"),
        1,
        doc="core.v1.PodStatus.nominatedNodeName",
    ),
    Column("Readiness Gates", "string", lambda _obj, _now: cells.NONE, 1, doc="core.v1.PodSpec.readinessGates"),
)
_SERVICE = (
    NAME,
    Column("Type", "string", cells.at("spec", "type"), doc="core.v1.ServiceSpec.type"),
    Column("Cluster-IP", "string", cells.at("spec", "clusterIP"), doc="core.v1.ServiceSpec.clusterIP"),
    Column("External-IP", "string", cells.external_address, doc="core.v1.ServiceSpec.externalIPs"),
    Column("Port(s)", "string", cells.service_ports, doc="core.v1.ServiceSpec.ports"),
    AGE,
    Column(
        "Selector",
        "string",
        lambda obj, _: cells.listed(
            [f"{key}={value}" for key, value in sorted((dig(obj, "spec", "selector") or {}).items())]
        ),
        1,
        doc="core.v1.ServiceSpec.selector",
    ),
)
_NODE = (
    NAME,
    Column("Status", "string", cells.node_status, description="The status of the node"),
    Column("Roles", "string", lambda _obj, _now: cells.NONE, description="The roles of the node"),
    AGE,
    Column(
        "Version",
        "string",
        cells.at("status", "nodeInfo", "kubeletVersion", default=""),
        doc="core.v1.NodeSystemInfo.kubeletVersion",
    ),
    Column("Internal-IP", "string", cells.node_address("InternalIP"), 1, doc="core.v1.NodeStatus.addresses"),
    Column("External-IP", "string", cells.node_address("ExternalIP"), 1, doc="core.v1.NodeStatus.addresses"),
    Column(
        "OS-Image",
        "string",
        cells.at("status", "nodeInfo", "osImage", default="<unknown>"),
        1,
        doc="core.v1.NodeSystemInfo.osImage",
    ),
    Column(
        "Kernel-Version",
        "string",
        cells.at("status", "nodeInfo", "kernelVersion", default="<unknown>"),
        1,
        doc="core.v1.NodeSystemInfo.kernelVersion",
    ),
    Column(
        "Container-Runtime",
        "string",
        cells.at("status", "nodeInfo", "containerRuntimeVersion", default="<unknown>"),
        1,
        doc="core.v1.NodeSystemInfo.containerRuntimeVersion",
    ),
)
_EVENT = (
    Column("Last Seen", "string", cells.event_seen, doc="core.v1.Event.lastTimestamp"),
    Column("Type", "string", cells.at("type", default=""), doc="core.v1.Event.type"),
    Column("Reason", "string", cells.at("reason", default=""), doc="core.v1.Event.reason"),
    Column(
        "Object",
        "string",
        lambda obj, _: (
            f"{(dig(obj, 'involvedObject', 'kind') or '').lower()}/{dig(obj, 'involvedObject', 'name') or ''}"
        ),
        doc="core.v1.Event.involvedObject",
    ),
    Column(
        "Subobject",
        "string",
        cells.at("involvedObject", "fieldPath", default=""),
        1,
        doc="core.v1.ObjectReference.fieldPath",
    ),
    Column("Source", "string", cells.event_source, 1, doc="core.v1.Event.source"),
    Column("Message", "string", lambda obj, _: str(obj.get("message", "")).strip(), doc="core.v1.Event.message"),
    Column("First Seen", "string", cells.event_first_seen, 1, doc="core.v1.Event.firstTimestamp"),
    Column("Count", "string", lambda obj, _: int(obj.get("count") or 1), 1, doc="core.v1.Event.count"),
    Column("Name", "string", lambda obj, _: obj["metadata"]["name"], 1, doc="meta.v1.ObjectMeta.name", format="name"),
)
_HPA_SPEC, _HPA_STATUS = "autoscaling.v2.HorizontalPodAutoscalerSpec", "autoscaling.v2.HorizontalPodAutoscalerStatus"
_AUTOSCALER = (
    NAME,
    Column("Reference", "string", cells.reference, doc=f"{_HPA_SPEC}.scaleTargetRef"),
    Column("Targets", "string", cells.metric_targets, doc=f"{_HPA_STATUS}.currentMetrics"),
    Column(
        "MinPods",
        "string",
        lambda obj, _: str(dig(obj, "spec", "minReplicas") or "<unset>"),
        doc=f"{_HPA_SPEC}.minReplicas",
    ),
    Column("MaxPods", "string", cells.at("spec", "maxReplicas", default=0), doc=f"{_HPA_SPEC}.maxReplicas"),
    Column(
        "Replicas", "string", cells.at("status", "currentReplicas", default=0), doc=f"{_HPA_STATUS}.currentReplicas"
    ),
    AGE,
)
_BUDGET = (
    NAME,
    Column(
        "Min Available",
        "string",
        cells.budget_amount("minAvailable"),
        description="The minimum number of pods that must be available.",
    ),
    Column(
        "Max Unavailable",
        "string",
        cells.budget_amount("maxUnavailable"),
        description="The maximum number of pods that may be unavailable.",
    ),
    Column(
        "Allowed Disruptions",
        "integer",
        cells.at("status", "disruptionsAllowed", default=0),
        description="Calculated number of pods that may be disrupted at this time.",
    ),
    AGE,
)
_SLICE = (
    NAME,
    Column("AddressType", "string", cells.at("addressType", default=""), doc="discovery.v1.EndpointSlice.addressType"),
    Column("Ports", "string", cells.slice_ports, doc="discovery.v1.EndpointSlice.ports"),
    Column("Endpoints", "string", cells.slice_addresses, doc="discovery.v1.EndpointSlice.endpoints"),
    AGE,
)
_REVISION = (
    NAME,
    Column("Controller", "string", cells.controller, description="Controller of the object"),
    Column("Revision", "string", cells.at("revision", default=0), doc="apps.v1.ControllerRevision.revision"),
    AGE,
)
_SECRET = (
    NAME,
    Column("Type", "string", cells.at("type", default=""), doc="core.v1.Secret.type"),
    Column("Data", "string", cells.data_count("data"), doc="core.v1.Secret.data"),
    AGE,
)
BUILT_IN: dict[tuple[str, str], tuple[Column, ...]] = {
    ("apps", "Deployment"): _DEPLOYMENT,
    ("apps", "ReplicaSet"): _REPLICA_SET,
    ("apps", "ControllerRevision"): _REVISION,
    ("", "Pod"): _POD,
    ("", "Service"): _SERVICE,
    ("", "Node"): _NODE,
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "Namespace"): (
        NAME,
        Column("Status", "string", cells.at("status", "phase", default=""), description="The status of the namespace"),
        AGE,
    ),
    ("", "ConfigMap"): (
        NAME,
        Column("Data", "string", cells.data_count("data", "binaryData"), doc="core.v1.ConfigMap.data"),
        AGE,
    ),
    ("", "Secret"): _SECRET,
    ("", "ServiceAccount"): (
        NAME,
        Column("Secrets", "string", cells.data_count("secrets"), doc="core.v1.ServiceAccount.secrets"),
        AGE,
    ),
    ("", "Endpoints"): (
        NAME,
        Column("Endpoints", "string", cells.endpoint_addresses, doc="core.v1.Endpoints.subsets"),
        AGE,
    ),
    ("", "PersistentVolumeClaim"): (
        NAME,
        Column(
            "Status", "string", cells.at("status", "phase", default=""), doc="core.v1.PersistentVolumeClaimStatus.phase"
        ),
        AGE,
    ),
    ("", "ResourceQuota"): (NAME, AGE),
    ("policy", "PodDisruptionBudget"): _BUDGET,
    ("autoscaling", "HorizontalPodAutoscaler"): _AUTOSCALER,
    ("discovery.k8s.io", "EndpointSlice"): _SLICE,
    ("coordination.k8s.io", "Lease"): (
        NAME,
        Column(
            "Holder",
            "string",
            cells.at("spec", "holderIdentity", default=""),
            doc="coordination.v1.LeaseSpec.holderIdentity",
        ),
        AGE,
    ),
    ("rbac.authorization.k8s.io", "RoleBinding"): _binding_columns("RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _binding_columns("ClusterRoleBinding"),
}
