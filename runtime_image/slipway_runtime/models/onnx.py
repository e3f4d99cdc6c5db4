"""ONNX models, run by ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipway_runtime.models.model import OutOfMemory
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec

PLATFORM = "onnxruntime_onnx"
_TYPES = {
    "tensor(bool)": Datatype.BOOL,
    "tensor(uint8)": Datatype.UINT8,
    "tensor(uint16)": Datatype.UINT16,
    "tensor(uint32)": Datatype.UINT32,
    "tensor(uint64)": Datatype.UINT64,
    "tensor(int8)": Datatype.INT8,
    "tensor(int16)": Datatype.INT16,
    "tensor(int32)": Datatype.INT32,
    "tensor(int64)": Datatype.INT64,
    "tensor(float16)": Datatype.FP16,
    "tensor(float)": Datatype.FP32,
    "tensor(double)": Datatype.FP64,
    "tensor(string)": Datatype.BYTES,
}


@dataclass(frozen=True)
class OnnxProgram:
    """A session. ``own_inputs`` and ``own_outputs`` are the model's names in the signature's order."""

    session: Any
    signature: Signature
    own_inputs: tuple[str, ...]
    own_outputs: tuple[str, ...]
    on_accelerator: bool = False
    platform: str = field(default=PLATFORM)

    def with_signature(self, signature: Signature) -> OnnxProgram:
        """The same program under another signature (tensors in the same order)."""
        return replace(self, signature=signature)

    def renamed(self, inputs: Sequence[str], outputs: Sequence[str]) -> OnnxProgram:
        """The program for signatures with tensors in the order of these names, where they are the model's own."""
        return replace(
            self, own_inputs=_ordered(inputs, self.own_inputs), own_outputs=_ordered(outputs, self.own_outputs)
        )

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the session; raises what ONNX Runtime raises."""
        by_name = {tensor.name: tensor for tensor in inputs}
        feed = {
            own: _to_onnx(by_name[spec.name]) for own, spec in zip(self.own_inputs, self.signature.inputs, strict=True)
        }
        try:
            results = self.session.run(list(self.own_outputs), feed)
        except Exception as error:
            if "Failed to allocate memory" in str(error):
                raise OutOfMemory("ONNX Runtime cannot allocate memory") from error
            raise
        names = [spec.name for spec in self.signature.outputs] or list(self.own_outputs)
        return tuple(_from_onnx(name, value) for name, value in zip(names, results, strict=True))


def load_onnx(path: Path, device: torch.device) -> OnnxProgram:
    """Load a model; weights beside it must lie in its folder (ONNX Runtime refuses others). Raises Refusal."""
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        text = "this image has no ONNX Runtime: install slipway[runtime-onnx]"
        raise Refusal("FormatNotSupported", text, ExitCode.BAD_ARGUMENTS) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that spin between requests would take the processor from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = _providers(onnxruntime.get_available_providers(), device)
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0][:500]
        raise Refusal("LoadFailed", f"ONNX Runtime cannot load the model: {first_line}") from error
    inputs, outputs = _specs(session.get_inputs(), "input"), _specs(session.get_outputs(), "output")
    return OnnxProgram(
        session,
        Signature(inputs, outputs, batched=False),
        tuple(spec.name for spec in inputs),
        tuple(spec.name for spec in outputs),
        on_accelerator="CUDAExecutionProvider" in session.get_providers(),
    )


def _providers(available: Sequence[str], device: torch.device) -> list[str]:
    if device.type == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in available:
        text = "this image's ONNX Runtime cannot use a GPU: use --device cpu, or an image with onnxruntime-gpu"
        raise Refusal("NoGPU", text, ExitCode.BAD_ARGUMENTS)
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def _specs(values: Sequence[Any], direction: str) -> tuple[TensorSpec, ...]:
    specs = []
    for value in values:
        datatype = _TYPES.get(value.type)
        if datatype is None:
            raise Refusal("UnsupportedModel", f"{direction} '{value.name}' is of type {value.type}")
        shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
        specs.append(TensorSpec(value.name, datatype, shape))
    return tuple(specs)


def _ordered(names: Sequence[str], own: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(names) if set(names) == set(own) else own


def _to_onnx(tensor: Tensor) -> Any:
    if tensor.datatype is not Datatype.BYTES:
        return tensor.array
    texts = [one.decode("utf-8") if isinstance(one, bytes) else str(one) for one in tensor.array.reshape(-1)]
    return np.array(texts, dtype=object).reshape(tensor.array.shape)


def _from_onnx(name: str, value: Any) -> Tensor:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"output '{name}' is no tensor but {type(value).__name__}")
    if value.dtype == object:
        texts = [str(one).encode() for one in value.reshape(-1)]
        return Tensor(name, Datatype.BYTES, np.array(texts, dtype=object).reshape(value.shape))
    return Tensor(name, _NUMPY_DATATYPES[value.dtype], value)


_NUMPY_DATATYPES = {datatype.numpy: datatype for datatype in _TYPES.values() if datatype is not Datatype.BYTES}
