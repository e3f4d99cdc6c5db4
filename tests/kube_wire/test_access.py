"""Tokens, roles and bodies in protobuf."""

import pytest

CORE, RBAC = "/api/v1/namespaces/team", "/apis/rbac.authorization.k8s.io/v1"


async def bind(client, rules, subject, namespace="team"):
    where = f"{RBAC}/namespaces/{namespace}"
    await client.post(f"{where}/roles", {"metadata": {"name": "r"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    await client.post(f"{where}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]})


async def test_unknown_tokens_are_unauthorized(client):
    refused = await client.get("/api/v1/namespaces", who="stranger")
    assert (refused.code, refused.body["reason"]) == (401, "Unauthorized")


async def test_rules_may_name_objects_and_parts(client):
    await client.post(f"{CORE}/configmaps", {"metadata": {"name": "a"}})
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    ]
    await bind(client, rules, {"kind": "ServiceAccount", "name": "robot", "namespace": "team"})
    assert (await client.get(f"{CORE}/configmaps/a", who="robot")).code == 200
    refused = await client.get(f"{CORE}/configmaps/b", who="robot")
    assert refused.body["message"] == (
        'configmaps "b" is forbidden: User "system:serviceaccount:team:robot" cannot get resource "configmaps" '
        'in API group "" in the namespace "team"'
    )
    assert (await client.get(f"{CORE}/pods/p", who="robot")).code == 403
    assert (await client.get(f"{CORE}/pods/p/log", who="robot")).code == 404


async def test_nobody_grants_more_than_they_hold(client):
    rules = [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]
    await bind(client, rules, {"kind": "User", "name": "limited"})
    granted = {
        "metadata": {"name": "x"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
    }
    refused = await client.post(f"{RBAC}/namespaces/team/roles", granted, who="limited")
    assert refused.code == 403
    assert refused.body["message"].endswith('{APIGroups:[""], Resources:["pods"], Verbs:["list"]}')
    granted = {"metadata": {"name": "x"}, "rules": rules[1:]}
    assert (await client.post(f"{RBAC}/namespaces/team/roles", granted, who="limited")).code == 201


async def test_reviews_answer_for_oneself_and_for_others(client):
    await bind(
        client, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}], {"kind": "User", "name": "limited"}
    )
    wanted = {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "team"}}
    authorization = "/apis/authorization.k8s.io/v1"
    own = await client.post(f"{authorization}/selfsubjectaccessreviews", {"spec": wanted}, who="limited")
    assert own.body["status"]["allowed"] is True
    other = await client.post(f"{authorization}/subjectaccessreviews", {"spec": {**wanted, "user": "nobody"}})
    assert other.body["status"]["allowed"] is False
    me = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, who="limited")
    assert me.body["status"]["userInfo"] == {"username": "limited", "groups": ["system:authenticated"]}


def field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return bytes([number << 3 | 2, len(content)]) + content


def protobuf(api_version: str, kind: str, message: bytes) -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, meta) + field(2, message)


async def test_go_clients_may_write_protobuf(client):
    entry = field(1, b"k") + field(2, b"v")
    message = field(1, field(1, b"proto")) + field(2, entry)
    made = await client.post(
        f"{CORE}/configmaps", protobuf("v1", "ConfigMap", message), kind="application/vnd.kubernetes.protobuf"
    )
    assert made.code == 201
    assert made.body["data"] == {"k": "v"}


@pytest.mark.parametrize("body", [b"no magic", b"k8s\x00\x0a\xff"])
async def test_broken_protobuf_is_a_bad_request(client, body):
    refused = await client.post(f"{CORE}/configmaps", body, kind="application/vnd.kubernetes.protobuf")
    assert (refused.code, refused.body["reason"]) == (400, "BadRequest")
