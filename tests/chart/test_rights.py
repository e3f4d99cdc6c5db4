"""The chart's roles are exactly what the code calls: no right more, none less."""

from collections.abc import Iterable
from typing import Any

import pytest
from slipway.kube.kinds import (
    CHILDREN,
    EVENT,
    HORIZONTAL_POD_AUTOSCALER,
    HTTP_ROUTE,
    LEASE,
    MESH,
    MODEL_DEPLOYMENT,
    OPTIONAL,
    POD,
    POLICIES,
    SCALED_OBJECT,
    SCALERS,
    WATCHED,
)

from tests.chart.rendering import EVERYTHING, MATRIX, of_kind, rendered

Right = tuple[str, str, str]
"""API group, resource, verb."""

READ = ("list", "watch")
CHILD = ("get", "list", "watch", "create", "patch", "delete")
CRDS = {("apiextensions.k8s.io", "customresourcedefinitions", verb) for verb in READ}


def rights(rules: Iterable[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def needed(*optional: Any) -> set[Right]:
    """What the code does with each kind, from the kinds' own lists."""
    here = [kind for kind in CHILDREN if kind not in OPTIONAL or kind in optional]
    found = {(kind.group, kind.plural, verb) for kind in here for verb in CHILD}
    seen = [POD, *(kind for kind in (SCALED_OBJECT,) if kind in optional)]
    found |= {(kind.group, kind.plural, verb) for kind in seen for verb in READ}
    found.add((POD.group, POD.plural, "patch"))
    found |= {(EVENT.group, EVENT.plural, verb) for verb in ("get", "create", "patch")}
    mine = (MODEL_DEPLOYMENT.group, MODEL_DEPLOYMENT.plural)
    found |= {(*mine, verb) for verb in ("get", *READ)}
    found |= {(mine[0], f"{mine[1]}/status", "patch"), (mine[0], f"{mine[1]}/finalizers", "update")}
    return found


def test_every_watched_kind_is_accounted_for() -> None:
    assert set(WATCHED) == {MODEL_DEPLOYMENT, POD, SCALED_OBJECT, *CHILDREN}
    assert set(OPTIONAL) == {*MESH, *POLICIES, HTTP_ROUTE, *SCALERS}


@pytest.mark.parametrize(
    ("name", "optional"),
    [
        ("defaults", (*MESH, HORIZONTAL_POD_AUTOSCALER)),
        ("without istio", (HORIZONTAL_POD_AUTOSCALER,)),
        ("gateway api only", (HTTP_ROUTE,)),
        ("everything", OPTIONAL),
    ],
)
def test_the_cluster_role_is_what_is_called(name: str, optional: tuple[Any, ...]) -> None:
    role = next(obj for obj in of_kind(rendered(MATRIX[name]), "ClusterRole") if obj["metadata"]["name"] == "slipway")
    assert rights(role["rules"]) == needed(*optional) | CRDS


def test_with_namespaces_nothing_is_granted_in_the_cluster() -> None:
    objects = rendered(MATRIX["namespaces"])
    assert not of_kind(objects, "ClusterRoleBinding")
    assert {obj["metadata"]["name"] for obj in of_kind(objects, "ClusterRole")} == {"slipway-view", "slipway-edit"}
    roles = {obj["metadata"]["namespace"]: obj for obj in of_kind(objects, "Role")}
    assert set(roles) == {"nlp", "vision", "slipway-system"}
    assert rights(roles["nlp"]["rules"]) == rights(roles["vision"]["rules"]) == needed(*MESH, HORIZONTAL_POD_AUTOSCALER)


def test_the_lease_is_the_only_thing_in_the_operators_namespace() -> None:
    [role] = of_kind(rendered({}), "Role")
    assert rights(role["rules"]) == {(LEASE.group, LEASE.plural, verb) for verb in ("get", "create", "update")}
    named = [rule for rule in role["rules"] if "create" not in rule["verbs"]]
    assert [rule["resourceNames"] for rule in named] == [["slipway"]]


@pytest.mark.parametrize("name", MATRIX)
def test_no_role_holds_wildcards_secrets_or_power_over_roles(name: str) -> None:
    for obj in rendered(MATRIX[name]):
        if obj["kind"] not in ("Role", "ClusterRole"):
            continue
        for group, resource, verb in rights(obj["rules"]):
            assert "*" not in (group, resource, verb)
            assert resource != "secrets"
            assert group != "rbac.authorization.k8s.io"
            assert verb not in ("escalate", "bind", "impersonate")


def test_everything_is_bound_to_the_one_account() -> None:
    for values in MATRIX.values():
        objects = rendered(values)
        [workload] = of_kind(objects, "Deployment")
        account = workload["spec"]["template"]["spec"]["serviceAccountName"]
        subjects = [
            subject
            for kind in ("RoleBinding", "ClusterRoleBinding")
            for binding in of_kind(objects, kind)
            for subject in binding["subjects"]
        ]
        expected = {"kind": "ServiceAccount", "name": account, "namespace": "slipway-system"}
        assert all(subject == expected for subject in subjects)
        assert {obj["metadata"]["name"] for obj in of_kind(objects, "ServiceAccount")} <= {account}


def test_people_may_ask_for_actions_but_viewers_may_not() -> None:
    roles = {obj["metadata"]["name"]: obj for obj in of_kind(rendered(EVERYTHING), "ClusterRole")}
    assert ("slipway.dev", "modeldeployments/status", "patch") in rights(roles["slipway-edit"]["rules"])
    assert {verb for _, _, verb in rights(roles["slipway-view"]["rules"])} == {"get", "list", "watch"}
