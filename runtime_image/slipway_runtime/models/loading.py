"""From a verified artefact to a model whose signature is known and agrees with what was declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from slipway_runtime import journal
from slipway_runtime.artefact.format import WEIGHTS, ModelKind
from slipway_runtime.artefact.location import Artefact
from slipway_runtime.artefact.pt2 import scan
from slipway_runtime.models import exported, onnx, torchscript, weights
from slipway_runtime.models.contract import parse_declared
from slipway_runtime.models.handler import load_handler
from slipway_runtime.models.program import TorchProgram
from slipway_runtime.models.settling import (
    Contract,
    LoadedModel,
    Specs,
    aligned,
    checked_outputs,
    first_that_works,
    probed,
    self_described,
)
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Device, Format, ModelSettings, Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, TensorSpec

__all__ = ["LoadedModel", "choose_device", "load"]

_KINDS = {
    Format.TORCHSCRIPT: {ModelKind.TORCHSCRIPT},
    Format.TORCH_EXPORT: {ModelKind.TORCH_EXPORT},
    Format.ONNX: {ModelKind.ONNX},
    Format.SAFETENSORS: WEIGHTS,
    Format.PYTHON: {ModelKind.HANDLER},
}


def load(artefact: Artefact, settings: ModelSettings) -> LoadedModel:
    """Load the model and settle its signature. Raises Refusal."""
    said = artefact.description
    contract = Contract(
        parse_declared(settings.inputs_json, "input") or said.inputs,
        parse_declared(settings.outputs_json, "output") or said.outputs,
    )
    if settings.format is not Format.AUTO and artefact.kind not in _KINDS[settings.format]:
        raise Refusal("NotAModel", f"format {settings.format} was asked for, this is {artefact.kind.value}")
    loaded = _load(artefact, settings, contract, choose_device(settings.device, settings.cuda_device))
    if said.max_rows is not None:
        loaded = replace(loaded, max_rows=min(said.max_rows, loaded.max_rows or said.max_rows))
    signature = loaded.program.signature
    if said.row_wise is False and signature.batched:
        return replace(loaded, program=loaded.program.with_signature(replace(signature, batched=False)))
    return loaded


def _load(artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device) -> LoadedModel:
    if artefact.kind is ModelKind.HANDLER:
        return load_handler(artefact, settings, contract, device)
    if artefact.kind is ModelKind.ONNX:
        return _load_onnx(artefact, settings, contract, device)
    for spec in contract.inputs or ():
        if spec.datatype is Datatype.BYTES:
            raise Refusal("ContractMismatch", f"input '{spec.name}': torch programs take no BYTES")
    if artefact.kind is ModelKind.TORCH_EXPORT:
        return _load_exported(artefact, settings, contract, device)
    return _load_module(artefact, settings, contract, device)


def choose_device(wanted: Device, number: int | None = None) -> torch.device:
    """The device to run on, ``number`` among several GPUs.

    Raises Refusal (exit code 64) when a GPU is demanded and there is none.
    """
    if wanted is Device.CPU:
        return torch.device("cpu")
    if torch.cuda.is_available():
        if number is not None and number >= torch.cuda.device_count():
            raise Refusal("NoGPU", f"--cuda-devices: there is no GPU {number} here", ExitCode.BAD_ARGUMENTS)
        return torch.device("cuda") if number is None else torch.device("cuda", number)
    if wanted is Device.CUDA or number is not None:
        raise Refusal("NoGPU", "--device cuda: torch sees no GPU", ExitCode.BAD_ARGUMENTS)
    return torch.device("cpu")


def _load_onnx(artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device) -> LoadedModel:
    _only_fp32(settings, "an ONNX model")
    program = onnx.load_onnx(artefact.path, device)
    own = program.signature
    inputs, outputs = aligned(contract.inputs, own.inputs, "input"), aligned(contract.outputs, own.outputs, "output")
    names = ([spec.name for spec in inputs], [spec.name for spec in outputs])
    return self_described(program.renamed(*names).with_signature(Signature(inputs, outputs, False)), contract)


def _only_fp32(settings: ModelSettings, what: str) -> None:
    if settings.precision is not Precision.FP32:
        raise Refusal(
            "PrecisionNotSupported",
            f"precision {settings.precision}: {what} keeps the one it was exported with, use fp32",
        )


def _load_exported(
    artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device
) -> LoadedModel:
    _only_fp32(settings, "an exported program")
    found = scan(artefact.path)
    module = exported.load_exported(artefact.path, found, device)
    inputs = aligned(contract.inputs, found.inputs, "input")
    outputs = aligned(contract.outputs, found.outputs, "output")
    call = module.call_for([spec.name for spec in inputs])
    loaded = self_described(
        TorchProgram(exported.PLATFORM, call, Signature(inputs, outputs, batched=False), device), contract
    )
    return replace(loaded, max_rows=found.max_rows if loaded.program.signature.batched else None)


def _load_module(artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device) -> LoadedModel:
    """TorchScript, or weights with a model class: a module whose program does not say what it takes."""
    if artefact.kind in WEIGHTS:
        platform = weights.PLATFORM
        module = weights.load_weights(artefact, device, settings.precision)
    else:
        platform = torchscript.PLATFORM
        module = torchscript.load_script(artefact.path, device, settings.precision)
    dtype = module.dtype
    if contract.inputs is not None:
        call = module.call_for([spec.name for spec in contract.inputs])
        return probed(TorchProgram(platform, call, Signature(contract.inputs, (), False), device, dtype), contract)
    call = module.call_for(module.argument_names)
    unknown = tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in module.argument_names)
    program = TorchProgram(platform, call, Signature(unknown, (), False, open=True), device, dtype)
    return _undeclared(program, torchscript.guess_inputs(module), contract)


def _undeclared(program: TorchProgram, guesses: Sequence[Specs], contract: Contract) -> LoadedModel:
    """Nothing is declared: look for an input that works; requests are judged by the model itself."""
    for guess in guesses:
        guessed = program.with_signature(Signature(guess, (), False, open=True))
        seen = first_that_works(guessed, guess)
        if seen is not None:
            observation, free = seen
            outputs = checked_outputs(observation.outputs, contract.outputs)
            signature = Signature(guess, outputs, observation.row_wise, open=True)
            return LoadedModel(program.with_signature(signature), free)
    journal.record("signature-unknown", "warning", text="declare inputs to have requests checked and batched")
    return LoadedModel(program, None)
