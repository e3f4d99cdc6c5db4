"""What the operator may do, as a ClusterRole: what the chart grants with all optional APIs (tests/rights compares)."""

from typing import Any

from slipway.kube.kinds import CHILDREN

OPERATOR = "system:serviceaccount:slipway-system:slipway"
LEASE_NAMESPACE = "slipway-system"
_RBAC = "rbac.authorization.k8s.io"

_CHILD = ("get", "list", "watch", "patch", "create", "delete")
_SEEN = ("list", "watch")
RIGHTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    *((kind.group, (kind.plural,), _CHILD) for kind in CHILDREN),
    ("keda.sh", ("scaledobjects",), _SEEN),
    ("", ("pods",), (*_SEEN, "patch")),
    ("slipway.dev", ("modeldeployments",), ("get", *_SEEN)),
    ("slipway.dev", ("modeldeployments/status",), ("patch",)),
    ("slipway.dev", ("modeldeployments/finalizers",), ("update",)),
    ("apiextensions.k8s.io", ("customresourcedefinitions",), _SEEN),
    ("", ("events",), ("get", "create", "patch")),
    ("coordination.k8s.io", ("leases",), ("get", "create", "update")),
)
"""API group, resources, verbs."""


def objects() -> list[dict[str, Any]]:
    """The lease's namespace, the ClusterRole and its binding to the operator's service account."""
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "slipway"},
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in RIGHTS
        ],
    }
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "slipway"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "slipway"},
        "subjects": [{"kind": "User", "apiGroup": _RBAC, "name": OPERATOR}],
    }
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}, role, binding]
