"""The built-in resources this server serves, in the order discovery lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import conversions, networks, policies, settings, typed, workloads
from .kinds import ALL_VERBS, STATUS_VERBS, Decode, Resource, Rules, built_in_schema
from .schema import JsonDict

_NO_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_POD_PARTS = {
    "binding": ("create",),
    "eviction": ("create",),
    "log": ("get",),
    "status": STATUS_VERBS,
}
_STATUS = {"status": STATUS_VERBS}
_SCALED = {"scale": STATUS_VERBS, "status": STATUS_VERBS}
_CREATE = ("create",)
_RBAC, _AUTH = "rbac.authorization.k8s.io", "authorization.k8s.io"


@dataclass(frozen=True)
class BuiltIn:
    """One row of the catalogue."""

    group: str
    version: str
    plural: str
    kind: str
    rules: Rules
    namespaced: bool = True
    short: str = ""
    parts: Mapping[str, tuple[str, ...]] | None = None
    verbs: tuple[str, ...] = ALL_VERBS
    categories: tuple[str, ...] = ()
    singular: str = ""


def rows(addresses: networks.ServiceAddresses, allow_loopback: bool, definition_rules: Rules) -> list[BuiltIn]:
    """The catalogue; some rules need to know the server's settings."""
    every = ("all",)
    core = [
        BuiltIn("", "v1", "configmaps", "ConfigMap", settings.CONFIG_MAP, short="cm"),
        BuiltIn("", "v1", "endpoints", "Endpoints", networks.ENDPOINTS, short="ep", singular="endpoints"),
        BuiltIn("", "v1", "events", "Event", settings.EVENT, short="ev"),
        BuiltIn(
            "",
            "v1",
            "namespaces",
            "Namespace",
            settings.NAMESPACE,
            namespaced=False,
            short="ns",
            verbs=_NO_COLLECTION,
            parts={"finalize": ("update",), "status": STATUS_VERBS},
        ),
        BuiltIn("", "v1", "nodes", "Node", settings.NODE, namespaced=False, short="no", parts=_STATUS),
        BuiltIn(
            "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", settings.CLAIM, short="pvc", parts=_STATUS
        ),
        BuiltIn("", "v1", "pods", "Pod", workloads.POD, short="po", categories=every, parts=_POD_PARTS),
        BuiltIn("", "v1", "resourcequotas", "ResourceQuota", settings.QUOTA, short="quota", parts=_STATUS),
        BuiltIn("", "v1", "secrets", "Secret", settings.SECRET),
        BuiltIn("", "v1", "serviceaccounts", "ServiceAccount", settings.ACCOUNT, short="sa"),
        BuiltIn(
            "",
            "v1",
            "services",
            "Service",
            networks.service_rules(addresses),
            short="svc",
            categories=every,
            parts=_STATUS,
        ),
    ]
    apps = [
        BuiltIn("apps", "v1", "controllerrevisions", "ControllerRevision", workloads.CONTROLLER_REVISION),
        BuiltIn(
            "apps",
            "v1",
            "deployments",
            "Deployment",
            workloads.DEPLOYMENT,
            short="deploy",
            categories=every,
            parts=_SCALED,
        ),
        BuiltIn(
            "apps",
            "v1",
            "replicasets",
            "ReplicaSet",
            workloads.REPLICA_SET,
            short="rs",
            categories=every,
            parts=_SCALED,
        ),
    ]
    access = [
        BuiltIn(
            "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", Rules(), False, verbs=_CREATE
        ),
        BuiltIn(_AUTH, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", Rules(), False, verbs=_CREATE),
        BuiltIn(_AUTH, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", Rules(), False, verbs=_CREATE),
        BuiltIn(_AUTH, "v1", "subjectaccessreviews", "SubjectAccessReview", Rules(), False, verbs=_CREATE),
    ]
    policy = [
        BuiltIn(
            "autoscaling",
            "v2",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            policies.AUTOSCALER,
            short="hpa",
            categories=every,
            parts=_STATUS,
        ),
        BuiltIn(
            "autoscaling",
            "v1",
            "horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            policies.AUTOSCALER_V1,
            short="hpa",
            categories=every,
            parts=_STATUS,
        ),
        BuiltIn(
            "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", policies.BUDGET, short="pdb", parts=_STATUS
        ),
        BuiltIn(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", policies.BINDING, False),
        BuiltIn(_RBAC, "v1", "clusterroles", "ClusterRole", policies.ROLE, False),
        BuiltIn(_RBAC, "v1", "rolebindings", "RoleBinding", policies.BINDING),
        BuiltIn(_RBAC, "v1", "roles", "Role", policies.ROLE),
    ]
    rest = [
        BuiltIn(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            definition_rules,
            False,
            short="crd crds",
            categories=("api-extensions",),
            parts=_STATUS,
        ),
        BuiltIn("coordination.k8s.io", "v1", "leases", "Lease", settings.LEASE),
        BuiltIn(
            "discovery.k8s.io",
            "v1",
            "endpointslices",
            "EndpointSlice",
            networks.slice_rules(allow_loopback),
        ),
    ]
    events = [BuiltIn("events.k8s.io", "v1", "events", "Event", settings.NEW_EVENT, short="ev")]
    return core + apps + events + access + policy + rest


def decoder(definition: str, kind: str, rules: Rules) -> Decode:
    """The decoder of a built-in kind: Go's reading of the object, then its defaults."""

    def decode(value: JsonDict) -> tuple[JsonDict, list[str]]:
        obj, unknown = typed.decode(definition, value, kind)
        if rules.defaults is not None:
            rules.defaults(obj)
        return obj, unknown

    return decode


def resource(row: BuiltIn) -> Resource:
    """The resource a row stands for."""
    definition, schema = built_in_schema(row.group, row.version, row.kind)
    api_version = f"{row.group}/{row.version}" if row.group else row.version

    def empty() -> JsonDict:
        return {"apiVersion": api_version, "kind": row.kind, **typed.zero(definition)}

    made = Resource(
        group=row.group,
        version=row.version,
        plural=row.plural,
        kind=row.kind,
        namespaced=row.namespaced,
        schema=schema,
        decode=decoder(definition, row.kind, row.rules),
        empty=empty,
        rules=row.rules,
        singular=row.singular or row.kind.lower(),
        list_kind=f"{row.kind}List",
        short_names=tuple(row.short.split()),
        categories=row.categories,
        verbs=row.verbs,
        subresources=dict(row.parts or {}),
    )
    if (row.group, row.kind) == ("events.k8s.io", "Event"):
        made.storage, made.storage_api_version = "/events", "v1"
        made.to_storage, made.from_storage = conversions.event_to_core, conversions.event_from_core
    elif (api_version, row.kind) == ("autoscaling/v1", "HorizontalPodAutoscaler"):
        made.storage, made.storage_api_version = "autoscaling/horizontalpodautoscalers", "autoscaling/v2"
        made.to_storage, made.from_storage = conversions.autoscaler_to_v2, conversions.autoscaler_from_v2
    return made
