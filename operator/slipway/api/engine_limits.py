"""Settings that the chosen engine has no means for.

They are refused: a precision that nobody computes in, or a limit that nobody keeps, must not look as if it were in
force.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.api.open_parts import containers_of
from slipway.api.problems import FieldValue, Problem, fields_of
from slipway.api.rollout import MetricKind, Strategy
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.versions import Device, Engine, Precision, Runtime, RuntimeOverrides, Version

__all__ = ["OWN", "beyond_engine"]

OWN = frozenset({"device", "precision", "batching", "limits", "tenants", "warmup", "cache", "tracing"})
"""Settings of the slipway server itself, in ``runtime``."""
_BEYOND: Mapping[Engine, frozenset[str]] = {
    Engine.SLIPWAY: frozenset(),
    Engine.TRITON: OWN,
    Engine.VLLM: OWN - frozenset({"device", "precision"}),
    Engine.CUSTOM: OWN,
}
"""Fields of ``runtime`` by engine that have to be left out."""
_INSTEAD: Mapping[Engine, str] = {
    Engine.TRITON: "Triton has it in the model's config.pbtxt, or as a flag in runtime.args; leave it out",
    Engine.VLLM: "vLLM has flags of its own, which go into runtime.args; leave it out",
    Engine.CUSTOM: "say it in runtime.args or runtime.env as your server wants it; leave it out",
}
_VERSION_BEYOND: Mapping[Engine, frozenset[str]] = {
    Engine.SLIPWAY: frozenset(),
    Engine.TRITON: frozenset({"format"}),
    Engine.VLLM: frozenset({"format", "inputs", "outputs", "goldens"}),
    Engine.CUSTOM: frozenset({"format"}),
}
_OPEN_AI = "vLLM speaks OpenAI's protocol, not the Open Inference Protocol"
_FORMAT = "the server finds the format out by itself; leave it out"
_SERVER = "server"


def beyond_engine(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every setting of that sort, in ``runtime``, in versions and in the rollout."""
    engine = spec.runtime.engine
    if engine is Engine.SLIPWAY:
        return
    yield from _runtime(engine, spec.runtime, "spec.runtime")
    for index, version in enumerate(spec.versions):
        path = f"spec.versions[{index}]"
        yield from _runtime(engine, version.runtime, f"{path}.runtime")
        yield from _version(engine, version, path)
    yield from _repetition(engine, spec)
    if engine is Engine.CUSTOM:
        yield from _image(spec)


def _runtime(engine: Engine, runtime: Runtime | RuntimeOverrides, path: str) -> Iterator[Problem]:
    refused = _BEYOND[engine]
    for field in fields_of(runtime, path):
        name = field.path.removeprefix(f"{path}.")
        if name in refused and _is_set(runtime, field):
            yield _problem(field.path, f"cannot be set with engine {engine}: {_INSTEAD[engine]}")
    if engine is Engine.VLLM:
        if runtime.device is Device.CPU:
            yield _problem(f"{path}.device", "cannot be cpu with engine vllm, whose image is for GPUs; leave it out")
        if runtime.precision is Precision.INT8:
            text = "cannot be int8 with engine vllm: quantise the model, and say how in runtime.args"
            yield _problem(f"{path}.precision", text)


def _is_set(runtime: Runtime | RuntimeOverrides, field: FieldValue) -> bool:
    """Whether a person has said it; fp32 is the default, and yet a wish where it is written down."""
    if field.value is None:
        return False
    said = field.path.endswith(".precision") and "precision" in runtime.model_fields_set
    return said or not field.is_default


def _version(engine: Engine, version: Version, path: str) -> Iterator[Problem]:
    refused = _VERSION_BEYOND[engine]
    for field in fields_of(version, path):
        name = field.path.removeprefix(f"{path}.")
        if name in refused and field.value is not None and not field.is_default:
            why = _FORMAT if name == "format" else f"{_OPEN_AI}; leave it out"
            yield _problem(field.path, f"cannot be set with engine {engine}: {why}")


def _repetition(engine: Engine, spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Only the slipway server repeats requests to a candidate."""
    why = f"needs engine slipway, whose servers repeat requests to the candidate; {engine} does not"
    if spec.rollout.shadow.percent:
        yield _problem("spec.rollout.shadow.percent", why)
    if spec.rollout.strategy is Strategy.SHADOW:
        yield _problem("spec.rollout.strategy", f"Shadow {why}")
    for index, check in enumerate(spec.rollout.analysis.checks):
        if check.metric is MetricKind.SHADOW_AGREEMENT:
            yield _problem(f"spec.rollout.analysis.checks[{index}].metric", f"shadowAgreement {why}")


def _image(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    text = "is required with engine custom, which has no image of its own"
    for index, version in enumerate(spec.versions):
        own = version.runtime
        if own.image or spec.runtime.image or any(map(_names_image, (spec.runtime.pod_template, own.pod_template))):
            continue
        yield _problem(
            "spec.runtime.image" if len(spec.versions) == 1 else f"spec.versions[{index}].runtime.image", text
        )


def _names_image(template: Mapping[str, Any] | None) -> bool:
    return any(item.get("name") == _SERVER and bool(item.get("image")) for item in containers_of(template))


def _problem(field: str, message: str) -> Problem:
    return Problem(field, "InvalidSpec", message)
