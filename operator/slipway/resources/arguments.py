"""The command line of the model server: ``slipway-runtime serve`` with everything that the revision says."""

import json
from collections.abc import Iterable

from slipway.api.revisions import Revision
from slipway.api.versions import Runtime, TensorSpec
from slipway.resources.artefacts import access_arguments, artefact_of
from slipway.resources.durations import plain_duration
from slipway.resources.shadow import SHADOW_FILE

__all__ = ["GOLDENS_PATH", "GRPC_PORT", "HTTP_PORT", "serve_arguments"]

HTTP_PORT = 8080
GRPC_PORT = 9000
GOLDENS_PATH = "/etc/slipway/goldens"
"""Folder in which the keys of the goldens' ConfigMap lie as files."""


def serve_arguments(model: str, revision: Revision) -> list[str]:
    """Arguments of the server container for the ModelDeployment named ``model``; the user's own come last."""
    version, runtime = revision.version, revision.runtime
    arguments = ["serve"]
    arguments += ["--model-name", model, "--model-version", version.name, "--revision", revision.name]
    arguments += ["--uri", artefact_of(version.uri).uri]
    if version.sha256:
        arguments += ["--sha256", version.sha256]
    arguments += access_arguments(version)
    arguments += ["--format", version.format.value, "--device", runtime.device.value]
    arguments += ["--precision", runtime.precision.value]
    arguments += ["--max-batch-size", str(runtime.batching.max_size)]
    arguments += ["--max-delay", plain_duration(runtime.batching.max_delay)]
    arguments += ["--adaptive", "true" if runtime.batching.adaptive else "false"]
    arguments += ["--timeout", plain_duration(runtime.limits.timeout)]
    arguments += ["--max-queue", str(runtime.limits.max_queue)]
    arguments += ["--max-request-bytes", str(int(runtime.limits.max_request_bytes.value))]
    arguments += ["--max-concurrency", str(runtime.limits.max_concurrency)]
    arguments += _admission(runtime)
    arguments += ["--warmup-requests", str(runtime.warmup.requests)]
    if version.goldens is not None:
        arguments += ["--warmup-file", GOLDENS_PATH]
    if version.inputs:
        arguments += ["--inputs", _tensors(version.inputs)]
    if version.outputs:
        arguments += ["--outputs", _tensors(version.outputs)]
    arguments += ["--shadow-file", SHADOW_FILE]
    arguments += ["--grace", plain_duration(runtime.termination_grace_period)]
    arguments += ["--http-port", str(HTTP_PORT), "--grpc-port", str(GRPC_PORT)]
    return arguments + list(runtime.args)


def _admission(runtime: Runtime) -> list[str]:
    """Tenants, cache and memory budget: flags only of what is turned on."""
    arguments: list[str] = []
    if runtime.limits.max_inflight_bytes.value > 0:
        arguments += ["--max-inflight-bytes", str(int(runtime.limits.max_inflight_bytes.value))]
    if runtime.tenants.header:
        rules = runtime.tenants.to_wire()
        arguments += ["--tenants", json.dumps(rules, separators=(",", ":"), sort_keys=True)]
    if runtime.cache.max_bytes.value > 0:
        arguments += ["--cache-bytes", str(int(runtime.cache.max_bytes.value))]
        arguments += ["--cache-ttl", plain_duration(runtime.cache.ttl)]
    return arguments


def _tensors(tensors: Iterable[TensorSpec]) -> str:
    return json.dumps([tensor.to_wire() for tensor in tensors], separators=(",", ":"), sort_keys=True)
