"""``slipway-runtime export``: weights with a model class as torch.export, TorchScript or ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from slipway_runtime.artefact.arrival import arrived
from slipway_runtime.artefact.format import WEIGHTS
from slipway_runtime.models.loading import load
from slipway_runtime.models.probing import synthetic
from slipway_runtime.models.torch_tensors import to_torch
from slipway_runtime.models.weights import load_weights
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import ModelSettings, Precision
from slipway_runtime.tensors.tensor import TensorSpec

_EXAMPLE_ROWS = 3


class Target(StrEnum):
    """Formats that can be written."""

    TORCH_EXPORT = "torch-export"
    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"


def export(source: ModelSettings, target: Target, output: Path, max_rows: int) -> None:
    """Write the model at ``source`` as a program. ``max_rows`` bounds the batch of a torch.export program.

    Raises Refusal for sources that are no weights with a model class, and when the model cannot be exported.
    """
    with arrived(source) as artefact:
        if artefact.kind not in WEIGHTS:
            text = f"export needs weights with a model class, this is {artefact.kind.value}"
            raise Refusal("FormatNotSupported", text)
        loaded = load(artefact, source)
        module = load_weights(artefact, torch.device("cpu"), Precision.FP32).module
    if loaded.free is None:
        raise Refusal("NoExample", "no input is known that the model takes: declare inputs", ExitCode.BAD_ARGUMENTS)
    specs = loaded.program.signature.inputs
    rows = _EXAMPLE_ROWS if loaded.program.signature.batched else 1
    # A dimension of one would be taken for a constant.
    tensors = synthetic(specs, rows, max(loaded.free, 2))
    example = tuple(to_torch(one, torch.device("cpu")) for one in tensors)
    names = tuple(tuple(spec.name for spec in side) for side in (specs, loaded.program.signature.outputs))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _write(module, example, names, _dynamic(specs, max_rows), target, output)
    except ModuleNotFoundError as error:
        text = f"{error.name} is not installed: install slipway[runtime-export]"
        raise Refusal("FormatNotSupported", text, ExitCode.BAD_ARGUMENTS) from error
    except Exception as error:
        lines = " ".join(str(error).split())[:500]
        raise Refusal("ExportFailed", f"the model cannot be exported: {type(error).__name__}: {lines}") from error


def _dynamic(specs: Sequence[TensorSpec], max_rows: int) -> tuple[dict[int, Any], ...]:
    batch = torch.export.Dim("batch", min=1, max=max_rows)
    return tuple(
        {at: batch if at == 0 else torch.export.Dim.AUTO for at, size in enumerate(spec.shape) if size == -1}
        for spec in specs
    )


def _write(
    module: Any,
    example: tuple[torch.Tensor, ...],
    names: tuple[tuple[str, ...], ...],
    dynamic: tuple[dict[int, Any], ...],
    target: Target,
    output: Path,
) -> None:
    if target is Target.TORCHSCRIPT:
        torch.jit.trace(module, example, strict=False).save(str(output))
        return
    program = torch.export.export(module, example, dynamic_shapes=dynamic)
    if target is Target.TORCH_EXPORT:
        torch.export.save(program, output)
        return
    inputs, outputs = (list(side) for side in names)
    kept: Any = {"input_names": inputs, "output_names": outputs or None}
    torch.onnx.export(program, f=str(output), **kept, external_data=False, verbose=False)
