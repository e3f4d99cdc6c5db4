"""The CRD in an API server: accepted, its rules enforced, nothing pruned, nothing defaulted that revisions cover."""

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from slipway.api.rules import RULES
from slipway.api.schema import open_api_schema
from slipway.api.status import ModelDeploymentStatus

from .cases import RULE_CASES, RuleCase, model_deployment, with_two
from .server import OBJECTS, Api, serving_api

pytestmark = pytest.mark.integration

SCHEMA = open_api_schema()
MESSAGES = {rule.name: rule.message for rule in RULES}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with serving_api() as made:
        yield made


async def test_every_rule_is_enforced_with_its_message(api: Api) -> None:
    for number, case in enumerate(RULE_CASES):
        await _check_case(api, case, number)


async def _check_case(api: Api, case: RuleCase, number: int) -> None:
    kept = deepcopy(case.kept)
    code, body = await api.call("POST", f"{OBJECTS}?dryRun=All", kept)
    assert code == 201, (number, case.rule, body)
    code, body = await api.call("POST", f"{OBJECTS}?dryRun=All", case.broken)
    assert code == 422, (number, case.rule)
    assert MESSAGES[case.rule] in body["message"], (number, case.rule)


async def test_scalars_are_defaulted_but_nothing_that_revisions_cover(api: Api) -> None:
    wanted = model_deployment(
        runtime={"batching": {}, "limits": {}, "env": [{"name": "A"}]}, rollout={"analysis": {}}, autoscaling={}
    )
    wanted["spec"]["versions"][0] |= {"runtime": {"batching": {}}, "goldens": {"configMap": "g"}}
    code, created = await api.create(wanted)
    assert code == 201, created
    spec = created["spec"]
    assert spec["versions"] == wanted["spec"]["versions"]
    assert spec["runtime"] == wanted["spec"]["runtime"]
    assert (spec["replicas"], spec["suspend"]) == (1, False)
    assert spec["autoscaling"]["maxReplicas"] == 8
    assert spec["rollout"]["analysis"]["interval"] == "30s"


async def test_no_field_of_the_spec_is_pruned(api: Api) -> None:
    wanted = model_deployment()
    wanted["spec"] = _filled(SCHEMA["properties"]["spec"], "spec")
    wanted["spec"]["versions"].append(wanted["spec"]["versions"][0] | {"name": "ww"})
    code, created = await api.create(wanted)
    assert code == 201, created
    assert created["spec"] == wanted["spec"]


async def test_the_contract_is_taken_as_it_is(api: Api) -> None:
    contract = yaml.safe_load((Path(__file__).parent / "contract.yaml").read_text())
    contract["metadata"]["namespace"] = "default"
    code, created = await api.call("POST", f"{OBJECTS}?fieldValidation=Strict", contract)
    assert code == 201, created
    assert _within(contract["spec"], created["spec"])
    assert created["spec"]["versions"] == contract["spec"]["versions"]
    assert created["spec"]["runtime"] == contract["spec"]["runtime"]


async def test_every_field_of_the_status_survives(api: Api) -> None:
    code, created = await api.create(model_deployment())
    assert code == 201
    status = _filled(SCHEMA["properties"]["status"], "status")
    created["status"] = status
    code, written = await api.call("PUT", f"{OBJECTS}/sentiment/status", created)
    assert code == 200, written
    assert written["status"] == status
    typed = ModelDeploymentStatus.from_wire(written["status"])
    assert typed.to_wire() == status
    assert written["metadata"]["generation"] == created["metadata"]["generation"]


async def test_the_provider_cannot_change_in_a_split(api: Api) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}

    async def patch(body: dict[str, Any], subresource: str = "") -> tuple[int, str]:
        code, answer = await api.call("PATCH", f"{OBJECTS}/sentiment{subresource}", body, headers=merge)
        return code, str(answer.get("message", ""))

    async def share(*weights: int) -> None:
        versions = [
            {"name": f"v{number}", "revision": f"sentiment-v{number}-0", "weight": {"intended": weight}}
            for number, weight in enumerate(weights, start=1)
        ]
        assert await patch({"status": {"versions": versions}}, "/status") == (200, "")

    await api.create(with_two())
    gateway, istio = ({"spec": {"traffic": {"provider": name}}} for name in ("gateway-api", "istio"))
    assert await patch(gateway) == (200, "")
    await share(75, 25)
    code, message = await patch(istio)
    assert code == 422
    assert "spec.traffic.provider: Forbidden: cannot change while versions share the traffic" in message
    # Nothing written is istio as well.
    assert (await patch({"spec": {"traffic": None}}))[0] == 422
    assert await patch({"spec": {"serve": "v2"}}) == (200, "")
    await share(100, 0)
    assert await patch(istio) == (200, "")
    await share(60, 40)
    assert await patch({"spec": {"traffic": None}}) == (200, "")


async def test_scale_points_to_spec_replicas(api: Api) -> None:
    await api.create(model_deployment(autoscaling={"mode": "External"}))
    merge = {"Content-Type": "application/merge-patch+json"}
    code, scaled = await api.call("PATCH", f"{OBJECTS}/sentiment/scale", {"spec": {"replicas": 3}}, headers=merge)
    assert code == 200, scaled
    _, read = await api.call("GET", f"{OBJECTS}/sentiment")
    assert read["spec"]["replicas"] == 3


async def test_an_object_with_wrong_types_or_unknown_fields_is_refused(api: Api) -> None:
    code, body = await api.create(model_deployment(replicas="many"))
    assert (code, body["reason"]) == (422, "Invalid")
    unknown = model_deployment(rolout={})
    code, body = await api.call("POST", f"{OBJECTS}?fieldValidation=Strict", unknown)
    assert code == 400
    assert "rolout" in body["message"]


def _within(part: Any, whole: Any) -> bool:
    """Whether everything in the part is in the whole, which may have more fields."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(_within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(_within(*pair) for pair in zip(part, whole, strict=True))
    return bool(part == whole)


SAMPLES = {
    "spec.serve": "vv",
    "spec.versions[].name": "vv",
    "spec.versions[].uri": "file:///vv",
    "spec.versions[].signature.uri": "",
    "spec.versions[].runtime.podTemplate": {"spec": {"anything": [1]}},
    "spec.rollout.approvedVersion": "vv",
    "spec.traffic.experiments[].version": "ww",
    "spec.traffic.mirror.version": "vv",
    "spec.rollout.steps[].weight": 5,
    "spec.rollout.analysis.checks[].query": "",
    "spec.autoscaling.qps.upper": 9,
    "spec.autoscaling.gpuUtilization.upper": 9,
    "spec.autoscaling.maxReplicas": 9,
    "spec.autoscaling.fallbackReplicas": 3,
    "status.conditions[].status": "True",
    "status.conditions[].reason": "Sample",
}
PATTERNS = {
    "https?://": "http://collector:4318",
    "ms|s|m|h|d": "5s",
    "Ki|Mi": "5Mi",
    "[eE]": "0.5",
    "[0-9a-f]{64}": "a" * 64,
    "[a-z0-9-]*$": "x-y",
}


def _filled(schema: dict[str, Any], path: str) -> Any:
    """A value with every field set to something else than nothing."""
    if path in SAMPLES:
        return SAMPLES[path]
    if "enum" in schema:
        return next(value for value in schema["enum"] if value)
    if schema.get("x-kubernetes-int-or-string"):
        return "5Mi"
    match schema["type"]:
        case "object":
            if schema.get("x-kubernetes-preserve-unknown-fields"):
                return {"some": {"field": 1}}
            return {name: _filled(below, f"{path}.{name}") for name, below in schema.get("properties", {}).items()}
        case "array":
            return [_filled(schema["items"], f"{path}[]")]
        case "string":
            pattern = schema.get("pattern", "")
            text = "2026-01-01T00:00:00Z" if path.startswith("status") else "vv"
            return next((sample for part, sample in PATTERNS.items() if part in pattern), text)
        case "boolean":
            return True
        case "integer":
            return min(schema.get("maximum", 7), max(schema.get("minimum", 0), 7))
        case other:
            assert other == "number"
            return min(schema.get("maximum", 7.5), 7.5) if "exclusiveMaximum" not in schema else 0.5
