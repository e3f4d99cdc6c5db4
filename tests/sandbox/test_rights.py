"""What a service account asks for is recorded, and an apply that makes an object needs two rights."""

import json
import secrets
from typing import Any

import pytest

from e2e.sandbox.controllers.client import APPLY_PATCH, CONFIG_MAPS, Access, ApiClient, ApiError
from tests.sandbox.conftest import ROBOT

pytestmark = pytest.mark.asyncio(loop_scope="session")
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"


async def may(client: ApiClient, name: str, verbs: list[str]) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}
    role = {"metadata": {"name": name}, "rules": [rule]}
    await client.request("POST", f"{_RBAC}/roles", role)
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ROBOT, "namespace": "default"}],
    }
    await client.request("POST", f"{_RBAC}/rolebindings", binding)


async def test_apply_needs_the_right_to_create_and_all_is_recorded(sandbox):
    name = f"apply-{secrets.token_hex(3)}"
    user = f"system:serviceaccount:default:{ROBOT}"
    path = CONFIG_MAPS.path("default", name)
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
    params = {"fieldManager": "robot"}
    access = Access.from_kubeconfig(sandbox.kubeconfig_for(user))
    async with sandbox.client("tests") as admin, ApiClient(access, "robot") as robot:
        await may(admin, f"{name}-patch", ["patch"])
        with pytest.raises(ApiError, match="cannot create resource"):
            await robot.request("PATCH", path, body, params=params, content_type=APPLY_PATCH)
        await may(admin, f"{name}-create", ["create"])
        await robot.request("PATCH", path, body, params=params, content_type=APPLY_PATCH)
    lines = (sandbox.data_dir / "apiserver" / "audit.log").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    mine = [event for event in events if event["objectRef"]["name"] == name]
    assert [event["verb"] for event in mine] == ["patch", "create", "patch", "create"]
    assert {event["user"]["username"] for event in mine} == {user}
