"""Fields that an engine cannot honour are refused by name, and never passed over."""

from typing import Any

import pytest
from slipway.api.engine_limits import OWN
from slipway.api.validation import validate
from slipway.api.versions import Engine, Runtime

from tests.api.cases import V1, V2, model_deployment

EVERY_ENGINE = frozenset(
    {"engine", "image", "resources", "env", "args", "serviceAccountName", "podTemplate", "terminationGracePeriod"}
)
"""Fields of ``runtime`` that hold for pods of any server."""
NOT_YET = frozenset({"pool"})


def problems(engine: str, **spec: Any) -> dict[str, str]:
    spec["runtime"] = {"engine": engine, "image": "server:1"} | spec.get("runtime", {})
    obj = model_deployment(**({"versions": [V1, V2], "serve": "v1"} | spec))
    return {problem.field: problem.message for problem in validate(obj).problems}


@pytest.mark.parametrize("engine", [engine.value for engine in Engine])
def test_the_smallest_object_is_accepted(engine: str) -> None:
    assert problems(engine) == {}


def test_every_field_of_the_runtime_is_a_servers_own_or_every_engines() -> None:
    fields = {info.alias or name for name, info in Runtime.model_fields.items()}
    assert fields == OWN | EVERY_ENGINE | NOT_YET


@pytest.mark.parametrize("engine", ["triton", "custom"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "cuda"),
        ("precision", "fp16"),
        ("precision", "fp32"),
        ("batching", {"maxSize": 8}),
        ("limits", {"timeout": "1s"}),
        ("warmup", {"requests": 1}),
    ],
)  # fmt: skip
def test_settings_of_the_slipway_server_are_refused(engine: str, field: str, value: Any) -> None:
    found = problems(engine, runtime={field: value})
    assert list(found) == [f"spec.runtime.{field}"]
    assert f"cannot be set with engine {engine}: " in found[f"spec.runtime.{field}"]
    own = problems(engine, versions=[V1, {**V2, "runtime": {field: value}}])
    assert list(own) == [f"spec.versions[1].runtime.{field}"]


@pytest.mark.parametrize(
    ("runtime", "field"),
    [
        ({"device": "cpu"}, "device"),
        ({"precision": "int8"}, "precision"),
        ({"batching": {"maxSize": 8}}, "batching"),
        ({"limits": {"maxQueue": 8}}, "limits"),
    ],
)
def test_vllm_takes_a_precision_and_a_gpu_and_no_more(runtime: dict[str, Any], field: str) -> None:
    assert list(problems("vllm", runtime=runtime)) == [f"spec.runtime.{field}"]
    assert problems("vllm", runtime={"device": "cuda", "precision": "bf16"}) == {}


TENSOR = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]


@pytest.mark.parametrize(
    ("entry", "engines"),
    [
        ({"format": "onnx"}, {"triton", "vllm", "custom"}),
        ({"inputs": TENSOR}, {"vllm"}),
        ({"outputs": TENSOR}, {"vllm"}),
        ({"goldens": {"configMap": "g"}}, {"vllm"}),
    ],
)
@pytest.mark.parametrize("engine", ["slipway", "triton", "vllm", "custom"])
def test_versions_declare_what_the_engine_can_be_held_to(engine: str, entry: dict[str, Any], engines: set[str]) -> None:
    found = problems(engine, versions=[V1, {**V2, **entry}])
    assert list(found) == ([f"spec.versions[1].{next(iter(entry))}"] if engine in engines else [])


@pytest.mark.parametrize("engine", ["triton", "vllm", "custom"])
@pytest.mark.parametrize(
    ("rollout", "fields"),
    [
        ({"shadow": {"percent": 10}}, ["shadow.percent"]),
        ({"strategy": "Shadow", "shadow": {"percent": 10}}, ["shadow.percent", "strategy"]),
        (
            {"shadow": {"percent": 10}, "analysis": {"checks": [{"name": "a", "metric": "shadowAgreement"}]}},
            ["shadow.percent", "analysis.checks[0].metric"],
        ),
    ],
)
def test_only_slipways_servers_repeat_requests(engine: str, rollout: dict[str, Any], fields: list[str]) -> None:
    found = problems(engine, rollout=rollout)
    assert list(found) == [f"spec.rollout.{field}" for field in fields]
    assert all("needs engine slipway" in message for message in found.values())


def test_a_custom_engine_needs_an_image() -> None:
    wanted = {"spec.versions[0].runtime.image", "spec.versions[1].runtime.image"}
    assert set(problems("custom", runtime={"image": ""})) == wanted
    own = [{**V1, "runtime": {"image": "a:1"}}, V2]
    assert set(problems("custom", runtime={"image": ""}, versions=own)) == {"spec.versions[1].runtime.image"}
    template = {"spec": {"containers": [{"name": "server", "image": "a:1"}]}}
    assert problems("custom", runtime={"image": "", "podTemplate": template}) == {}
