"""The chart's own roles, whole or with one right missing, and a record of what is asked for under them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from slipway.kube.kinds import APIS

from e2e.sandbox.apiserver.access import Attributes, Authorizer, Decision, User, service_account
from e2e.sandbox.apiserver.store import Store
from tests.chart.rendering import of_kind, rendered

Obj = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
ACCOUNT = service_account("slipway-system", "slipway")
VALUES = {"istio": {"policies": True}, "gatewayApi": {"enabled": True}, "keda": {"enabled": True}}
"""All optional APIs; the others are on by default."""


class Right(NamedTuple):
    """What one word in a role allows."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def _rights(rules: Iterable[Obj]) -> set[Right]:
    return {
        Right(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _role(kind: str, name: str, **values: Any) -> Obj:
    [found] = [role for role in of_kind(rendered(VALUES | values), kind) if role["metadata"]["name"] == name]
    return found


def granted() -> set[Right]:
    """Every right that the chart grants to the operator."""
    return _rights([*_role("ClusterRole", "slipway")["rules"], *_role("Role", "slipway-leader")["rules"]])


def without(rules: Iterable[Obj], lacking: Right | None) -> list[Obj]:
    """Rules that say the same but for one right."""
    found = []
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                verbs = [verb for verb in rule["verbs"] if Right(group, resource, verb) != lacking]
                found.append({**rule, "apiGroups": [group], "resources": [resource], "verbs": verbs})
    return [rule for rule in found if rule["verbs"]]


def in_namespace(namespace: str, lacking: Right | None) -> list[Obj]:
    """Roles and bindings of an installation with ``watchNamespaces``, its Lease in the same namespace."""
    roles = [_role("Role", "slipway", watchNamespaces=["nlp"]), _role("Role", "slipway-leader")]
    return [obj for role in roles for obj in _bound(role, lacking, namespace)]


def in_cluster(lacking: Right | None) -> list[Obj]:
    """The ClusterRole of an installation that works everywhere, and its binding."""
    return _bound(_role("ClusterRole", "slipway"), lacking, "")


def _bound(role: Obj, lacking: Right | None, namespace: str) -> list[Obj]:
    metadata = {"name": role["metadata"]["name"]} | ({"namespace": namespace} if namespace else {})
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "namespace": "slipway-system", "name": "slipway"}],
    }
    return [{**role, "metadata": metadata, "rules": without(role["rules"], lacking)}, binding]


def path_of(obj: Obj) -> str:
    """Where a role or a binding is stored."""
    namespace = obj["metadata"].get("namespace")
    place = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{RBAC}/v1/{place}{obj['kind'].lower()}s/{obj['metadata']['name']}"


class Recorder(Authorizer):
    """RBAC that notes what the operator's account was allowed and what it was refused."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.allowed: set[Right] = set()
        self.refused: list[Right] = []

    def decide(self, user: User, wanted: Attributes) -> Decision:
        decision = super().decide(user, wanted)
        if user.name == ACCOUNT.name and wanted.resource:
            right = Right(wanted.group, wanted.full_resource, wanted.verb)
            if decision.allowed:
                self.allowed.add(right)
            else:
                self.refused.append(right)
        return decision


def optional_apis() -> tuple[str, ...]:
    """Names of all optional APIs."""
    return tuple(APIS)
