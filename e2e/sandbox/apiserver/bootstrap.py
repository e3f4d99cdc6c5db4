"""What a fresh cluster contains: namespaces and the default roles."""

from __future__ import annotations

from typing import Any

from .schema import JsonDict

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_RBAC = "rbac.authorization.k8s.io"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_DISCOVERY = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_READ = ["get", "list", "watch"]
_CORE = [
    "configmaps",
    "endpoints",
    "events",
    "persistentvolumeclaims",
    "pods",
    "pods/log",
    "pods/status",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "services/status",
]
_APPS = [
    "controllerrevisions",
    "deployments",
    "deployments/scale",
    "deployments/status",
    "replicasets",
    "replicasets/scale",
]


def _rule(verbs: list[str], groups: list[str], resources: list[str]) -> JsonDict:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _workload_rules(verbs: list[str], secrets: bool) -> list[JsonDict]:
    return [
        _rule(verbs, [""], [*_CORE, *(["secrets"] if secrets else [])]),
        _rule(verbs, ["apps"], _APPS),
        _rule(verbs, ["autoscaling"], ["horizontalpodautoscalers"]),
        _rule(verbs, ["policy"], ["poddisruptionbudgets"]),
        _rule(verbs, ["discovery.k8s.io"], ["endpointslices"]),
        _rule(_READ, [""], ["namespaces"]),
    ]


def _cluster_role(name: str, rules: list[JsonDict]) -> JsonDict:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": dict(_LABELS)},
        "rules": rules,
    }


def _binding(name: str, role: str, groups: list[str]) -> JsonDict:
    subjects = [{"kind": "Group", "apiGroup": _RBAC, "name": group} for group in groups]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(_LABELS)},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def objects() -> list[tuple[str, str, str, str, JsonDict]]:
    """The objects to create: group, version, plural, namespace and body of each."""
    own_reviews = [
        _rule(["create"], ["authorization.k8s.io"], ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
        _rule(["create"], ["authentication.k8s.io"], ["selfsubjectreviews"]),
    ]
    everything: list[JsonDict] = [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    roles = [
        _cluster_role("cluster-admin", everything),
        _cluster_role("system:discovery", [{"verbs": ["get"], "nonResourceURLs": _DISCOVERY}]),
        _cluster_role("system:public-info-viewer", [{"verbs": ["get"], "nonResourceURLs": _PUBLIC}]),
        _cluster_role("system:basic-user", own_reviews),
        _cluster_role(
            "admin", [*_workload_rules(_READ + _WRITE, True), _rule(_READ + _WRITE, [_RBAC], ["roles", "rolebindings"])]
        ),
        _cluster_role("edit", _workload_rules(_READ + _WRITE, True)),
        _cluster_role("view", _workload_rules(_READ, False)),
    ]
    bindings = [
        _binding("cluster-admin", "cluster-admin", ["system:masters"]),
        _binding("system:discovery", "system:discovery", ["system:authenticated"]),
        _binding(
            "system:public-info-viewer", "system:public-info-viewer", ["system:authenticated", "system:unauthenticated"]
        ),
        _binding("system:basic-user", "system:basic-user", ["system:authenticated"]),
    ]
    out: list[tuple[str, str, str, str, JsonDict]] = []
    for name in NAMESPACES:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        out.append(("", "v1", "namespaces", "", body))
    out += [(_RBAC, "v1", "clusterroles", "", role) for role in roles]
    out += [(_RBAC, "v1", "clusterrolebindings", "", binding) for binding in bindings]
    return out
