"""Documents about the server and its model: metadata, configuration, index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipway_runtime import __version__
from slipway_runtime.models.model import Model
from slipway_runtime.tensors.tensor import TensorSpec

_MICROSECONDS = 1_000_000
_EXTENSIONS = [
    "binary_tensor_data",
    "classification",
    "generate",
    "logging",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
    "trace",
]
_BACKENDS = ("python", "onnxruntime")
"""Platforms begin with their names; all others are run by torch."""


def server_metadata() -> dict[str, Any]:
    """``GET /v2``."""
    return {"name": "slipway-runtime", "version": __version__, "extensions": _EXTENSIONS}


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}


def model_metadata(name: str, versions: Sequence[str], model: Model, sha256: str) -> dict[str, Any]:
    """``GET /v2/models/M``: shapes include the batch dimension; the artefact's digest is among the parameters."""
    return {
        "name": name,
        "versions": list(versions),
        "platform": model.platform,
        "inputs": [_tensor(spec) for spec in model.signature.inputs],
        "outputs": [_tensor(spec) for spec in model.signature.outputs],
        "parameters": {"sha256": sha256},
    }


def model_config(name: str, model: Model, max_batch_size: int, max_delay: float, instances: int = 1) -> dict[str, Any]:
    """``GET /v2/models/M/config``: with batching, ``dims`` leave the batch dimension out (Triton's rule)."""
    batched = model.signature.batched
    config: dict[str, Any] = {
        "name": name,
        "platform": model.platform,
        "backend": next((one for one in _BACKENDS if model.platform.startswith(one)), "pytorch"),
        "max_batch_size": max_batch_size if batched else 0,
        "input": [_config_tensor(spec, batched) for spec in model.signature.inputs],
        "output": [_config_tensor(spec, batched) for spec in model.signature.outputs],
        "instance_group": [
            {"name": name, "count": instances, "kind": "KIND_GPU" if model.on_accelerator else "KIND_CPU"}
        ],
    }
    if model.signature.streams:
        config["model_transaction_policy"] = {"decoupled": True}
    if batched:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": int(max_delay * _MICROSECONDS)}
    return config


def _config_tensor(spec: TensorSpec, batched: bool) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    dims = spec.shape[1:] if batched else spec.shape
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(dims)}
