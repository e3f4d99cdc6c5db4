"""Status and specs at their worst: what others wrote there, what is as long as it may be, and who may write at all."""

import asyncio
import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.api.status import ModelDeploymentStatus
from slipway.kube.transport import Call

from e2e.faults.api import Api
from e2e.sandbox.apiserver import User
from tests.engine.world import KEY, World, versions
from tests.hostile.specimens import STATUS, Author, Gate, model_deployment

GATE = Gate()
SPEC = versions("v1", "v2", serve="v1")
OBJECTS = f"/apis/slipway.dev/v1alpha1/namespaces/{KEY.namespace}/modeldeployments"
ETCD_LIMIT = 1024 * 1024


def garbled(seed: int) -> dict[str, Any]:
    """A status that the schema allows and no operator would write."""
    author = Author(Random(seed), readable=seed % 4 > 0)
    status = author.object(STATUS, fill=0.6)
    spec = GATE.admit(model_deployment(SPEC, status=status))
    return status if not spec[1] else {}


def test_garbled_statuses_pass_the_schema() -> None:
    """The test below would prove nothing if they did not."""
    assert sum(bool(garbled(seed)) for seed in range(40)) > 20


@given(st.integers(0, 2**32))
@settings(max_examples=25)
def test_whatever_stands_in_status_the_stable_version_is_served_in_the_end(seed: int) -> None:
    status = garbled(seed)

    async def play() -> World:
        world = World()
        world.declare(SPEC)
        await world.settle()
        serving = world.status
        assert serving["stable"] == "v1"
        stored = world.api.get("modeldeployments", *KEY)
        world.api.put({**stored, "status": status})
        await world.settle(rounds=300)
        return world

    world = asyncio.run(play())
    assert GATE.admit(model_deployment(SPEC, status=world.status))[1] == []
    weights = {entry["name"]: entry["weight"]["intended"] for entry in world.status["versions"]}
    assert sum(weights.values()) == 100


def test_what_is_as_long_as_it_may_be_fits_into_etcd() -> None:
    """Sixteen versions of the longest names and texts, each with a message of a server's whole log."""
    entries = []
    for number in range(16):
        name = f"{'v' * 38}{number:02}"
        entries.append(
            {"name": name, "revision": f"m-{name}-00000000", "message": "é" * 30_000, "reason": "x" * 30_000}
        )
    written = ModelDeploymentStatus.from_wire({"versions": entries}).to_wire()
    assert len(json.dumps(written, ensure_ascii=False).encode()) < ETCD_LIMIT
    assert GATE.admit(model_deployment(SPEC, status=written))[1] == []


async def test_who_may_not_write_status_is_refused() -> None:
    """A right to ModelDeployments is none to their status; what they write there with it is dropped."""
    api = Api(lambda: 1_767_225_600.0, {"token": User("ada")})
    await api.start()
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    verbs = ["get", "create", "patch", "update"]
    rule = {"apiGroups": ["slipway.dev"], "resources": ["modeldeployments"], "verbs": verbs}
    await api.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": "editor"}, "rules": [rule]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "editor"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}]
    binding = {"metadata": {"name": "ada"}, "roleRef": reference, "subjects": subjects}
    await api.ask("POST", f"{rbac}/clusterrolebindings", binding)
    await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": KEY.namespace}})
    made = model_deployment(SPEC)
    made["metadata"] = {"name": KEY.name}
    assert (await api.answer(Call("POST", OBJECTS, (), made), "token")).status == 201
    patch = {"status": {"action": {"id": "1", "verb": "promote"}}}
    merge = "application/merge-patch+json"
    refused = await api.answer(Call("PATCH", f"{OBJECTS}/{KEY.name}/status", (), patch, merge), "token")
    assert (refused.status, json.loads(refused.body)["reason"]) == (403, "Forbidden")
    taken = await api.answer(Call("PATCH", f"{OBJECTS}/{KEY.name}", (), patch, merge), "token")
    assert taken.status == 200
    assert "status" not in json.loads(taken.body)
