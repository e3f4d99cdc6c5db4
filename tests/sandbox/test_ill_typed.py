"""Answers to values of wrong types that kube-apiserver v1.36.2 gave to the same requests, and the sandbox did not."""

import json
from typing import Any

import pytest
import pytest_asyncio
from slipway.kube.transport import Call

from e2e.faults.api import Api
from tests.sandbox.differential import APPLY

pytestmark = pytest.mark.asyncio(loop_scope="module")

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
Found = tuple[int, dict[str, Any]]
PLACE = "/apis/apps/v1/namespaces/t/deployments/d"
MODELS = "/apis/slipway.dev/v1alpha1/namespaces/t/modeldeployments"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api() -> Api:
    made = Api(lambda: 1_767_225_600.0)
    await made.start()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}}
    await made.answer(Call("POST", "/api/v1/namespaces", (), namespace))
    await applied(made, deployment())
    return made


def deployment(name: str = "d", **pod: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], **pod}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


async def applied(api: Api, body: dict[str, Any], manager: str = "m", force: str = "false") -> Found:
    return await asked(api, Call("PATCH", PLACE, (("fieldManager", manager), ("force", force)), body, APPLY))


async def asked(api: Api, call: Call) -> Found:
    answer = await api.answer(call)
    found: dict[str, Any] = json.loads(answer.body)
    return answer.status, found


def causes(body: dict[str, Any]) -> set[tuple[str, str]]:
    return {(cause["reason"], cause["field"]) for cause in body["details"]["causes"]}


@pytest.mark.parametrize(
    "pod",
    [
        {"terminationGracePeriodSeconds": 30.5},
        {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "abc"}}}]},
        {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "x"}}]},
    ],
)
async def test_an_applied_value_that_a_built_in_kind_cannot_hold_is_a_500(api: Api, pod: dict[str, Any]) -> None:
    code, body = await applied(api, deployment(**pod))
    assert code == 500
    assert body["message"].startswith(
        "failed to convert new object (t/d; apps/v1, Kind=Deployment) to proper version: "
    )
    assert "reason" not in body


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
@pytest.mark.parametrize("value", ["x", 5, []])
async def test_a_patch_that_makes_nonsense_of_a_built_in_kind_is_to_blame(api: Api, kind: str, value: Any) -> None:
    code, body = await asked(api, Call("PATCH", PLACE, (), {"spec": value}, kind))
    assert (code, body["reason"], causes(body)) == (422, "Invalid", {("FieldValueInvalid", "patch")})
    assert set(body["details"]) == {"causes"}


def model(spec: Any) -> dict[str, Any]:
    described = {"versions": [{"name": "v1", "uri": "file:///m"}], **spec} if isinstance(spec, dict) else spec
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "a"},
        "spec": described,
    }


def told(field: str) -> set[tuple[str, str]]:
    return {("FieldValueInvalid", ".spec.replicas"), ("FieldValueInvalid", "<nil>"), ("FieldValueTypeInvalid", field)}


@pytest.mark.parametrize(
    ("spec", "field"), [({"replicas": 1.5}, "spec.replicas"), ({"replicas": "x"}, "spec.replicas"), ("x", "spec")]
)
async def test_replicas_that_a_scale_cannot_show_are_told_as_well(api: Api, spec: Any, field: str) -> None:
    code, body = await asked(api, Call("POST", MODELS, (), model(spec)))
    assert (code, causes(body)) == (422, told(field))


async def test_a_fraction_can_be_typed_and_is_then_not_valid(api: Api) -> None:
    call = Call("PATCH", f"{MODELS}/a", (("fieldManager", "m"),), model({"replicas": 1.5}), APPLY)
    code, body = await asked(api, call)
    assert (code, causes(body)) == (422, told("spec.replicas"))


async def test_conflicts_of_managers_come_before_a_name_that_does_not_fit(api: Api) -> None:
    other = deployment("other")
    other["spec"]["replicas"] = 2
    code, body = await applied(api, other, "somebody")
    assert (code, causes(body)) == (409, {("FieldManagerConflict", ".spec.replicas")})
    code, body = await applied(api, other, "somebody", "true")
    assert (code, body["reason"]) == (400, "BadRequest")
