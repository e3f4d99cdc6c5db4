"""From a verified artefact to a model whose signature is known and agrees with what was declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from slipway_runtime import journal
from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.artefact.location import Artefact
from slipway_runtime.artefact.pt2 import scan
from slipway_runtime.models import exported, torchscript
from slipway_runtime.models.contract import Direction, agree, align_names, parse_declared
from slipway_runtime.models.probing import Observation, observe
from slipway_runtime.models.program import TorchProgram
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Device, Format, ModelSettings, Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, TensorSpec

# Sizes tried for dimensions that are free and not the batch: some models need more than one element.
_FREE_SIZES = (1, 8, 32, 64, 224)
_KINDS = {Format.TORCHSCRIPT: ModelKind.TORCHSCRIPT, Format.TORCH_EXPORT: ModelKind.TORCH_EXPORT}
_DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}

Specs = tuple[TensorSpec, ...]


@dataclass(frozen=True)
class LoadedModel:
    """A model, and what probing it found: ``free`` is the size that works for free dimensions, None if
    no synthetic input did. ``max_rows`` is the largest batch its program allows, if it says so.
    """

    program: TorchProgram
    free: int | None
    max_rows: int | None = None


@dataclass(frozen=True)
class Contract:
    """Declared inputs and outputs; None where the user declared nothing."""

    inputs: Specs | None
    outputs: Specs | None


def load(artefact: Artefact, settings: ModelSettings) -> LoadedModel:
    """Load the model and settle its signature. Raises Refusal."""
    contract = Contract(parse_declared(settings.inputs_json, "input"), parse_declared(settings.outputs_json, "output"))
    _check_format(artefact, settings.format)
    for spec in contract.inputs or ():
        if spec.datatype is Datatype.BYTES:
            raise Refusal("ContractMismatch", f"input '{spec.name}': torch programs take no BYTES")
    device = choose_device(settings.device)
    if artefact.kind is ModelKind.TORCH_EXPORT:
        return _load_exported(artefact, settings, contract, device)
    return _load_script(artefact, settings, contract, device)


def _check_format(artefact: Artefact, wanted: Format) -> None:
    if wanted is Format.AUTO:
        return
    kind = _KINDS.get(wanted)
    if kind is None:
        raise Refusal("FormatNotSupported", f"format {wanted}: not supported yet by this runtime")
    if kind is not artefact.kind:
        raise Refusal("NotAModel", f"format {wanted} was asked for, this is {artefact.kind.value}")


def choose_device(wanted: Device) -> torch.device:
    """The device to run on. Raises Refusal (exit code 64) when a GPU is demanded and there is none."""
    if wanted is Device.CPU:
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if wanted is Device.CUDA:
        raise Refusal("NoGPU", "--device cuda: torch sees no GPU", ExitCode.BAD_ARGUMENTS)
    return torch.device("cpu")


def _load_exported(
    artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device
) -> LoadedModel:
    if settings.precision is not Precision.FP32:
        raise Refusal(
            "PrecisionNotSupported",
            f"precision {settings.precision}: an exported program keeps the one it was exported with, use fp32",
        )
    found = scan(artefact.path)
    module = exported.load_exported(artefact.path, found, device)
    inputs = _aligned(contract.inputs, found.inputs, "input")
    outputs = _aligned(contract.outputs, found.outputs, "output")
    call = module.call_for([spec.name for spec in inputs])
    signature = Signature(inputs, outputs, batched=False)
    program = TorchProgram(exported.PLATFORM, call, signature, device)
    loaded = _probed(program, contract)
    batched = loaded.program.signature.batched
    return replace(
        loaded,
        program=program.with_signature(Signature(inputs, outputs, batched)),
        max_rows=found.max_rows if batched else None,
    )


def _aligned(declared: Specs | None, actual: Specs, direction: Direction) -> Specs:
    if declared is None:
        return actual
    order = align_names([spec.name for spec in declared], [spec.name for spec in actual], direction)
    return tuple(agree(spec, actual[at], direction) for spec, at in zip(declared, order, strict=True))


def _load_script(artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device) -> LoadedModel:
    dtype = _DTYPES.get(settings.precision)
    if dtype is None and settings.precision is not Precision.FP32:
        raise Refusal("PrecisionNotSupported", f"precision {settings.precision}: not supported yet by this runtime")
    script = torchscript.load_script(artefact.path, device, dtype)
    if contract.inputs is not None:
        call = script.call_for([spec.name for spec in contract.inputs])
        signature = Signature(contract.inputs, (), batched=False)
        return _probed(TorchProgram(torchscript.PLATFORM, call, signature, device, dtype), contract)
    return _undeclared(script, contract, device, dtype)


def _undeclared(
    script: torchscript.ScriptModule, contract: Contract, device: torch.device, dtype: torch.dtype | None
) -> LoadedModel:
    """Nothing is declared: look for an input that works; requests are judged by the model itself."""
    call = script.call_for(script.argument_names)
    unknown = tuple(TensorSpec(name, Datatype.FP32, (-1,)) for name in script.argument_names)
    program = TorchProgram(torchscript.PLATFORM, call, Signature(unknown, (), False, open=True), device, dtype)
    for guess in torchscript.guess_inputs(script):
        guessed = program.with_signature(Signature(guess, (), False, open=True))
        seen = _first_that_works(guessed, guess)
        if seen is not None:
            observation, free = seen
            outputs = _checked_outputs(observation.outputs, contract.outputs)
            signature = Signature(guess, outputs, observation.row_wise, open=True)
            return LoadedModel(program.with_signature(signature), free)
    journal.record("signature-unknown", "warning", text="declare inputs to have requests checked and batched")
    return LoadedModel(program, None)


def _first_that_works(program: TorchProgram, inputs: Specs) -> tuple[Observation, int] | None:
    sizes = _FREE_SIZES if _has_free(inputs) else _FREE_SIZES[:1]
    for free in sizes:
        try:
            return observe(program, inputs, free), free
        except Refusal:
            raise
        except Exception as error:
            journal.record("probe-failed", free=free, cause=str(error).strip().rpartition("\n")[2][:300])
    return None


def _has_free(specs: Sequence[TensorSpec]) -> bool:
    return any(-1 in spec.shape[1:] for spec in specs)


def _probed(program: TorchProgram, contract: Contract) -> LoadedModel:
    """Run the program on inputs of its declared signature: it must take them and give what is declared."""
    inputs = program.signature.inputs
    seen = _first_that_works(program, inputs)
    if seen is None:
        if not _has_free(inputs):
            raise Refusal("ContractMismatch", "the model fails on inputs of the declared datatypes and shapes")
        outputs = contract.outputs or program.signature.outputs
        open_outputs = Signature(inputs, outputs, batched=False, open=not outputs)
        return LoadedModel(program.with_signature(open_outputs), None)
    observation, free = seen
    outputs = _checked_outputs(_loosened(observation.outputs, inputs), contract.outputs)
    return LoadedModel(program.with_signature(Signature(inputs, outputs, observation.row_wise)), free)


def _loosened(outputs: Specs, inputs: Specs) -> Specs:
    """Where inputs have free dimensions, a probe cannot tell which sizes of the outputs follow them."""
    if not _has_free(inputs):
        return outputs
    return tuple(
        TensorSpec(spec.name, spec.datatype, (spec.shape[0], *(-1 for _ in spec.shape[1:])) if spec.shape else ())
        for spec in outputs
    )


def _checked_outputs(seen: Specs, declared: Specs | None) -> Specs:
    """The outputs' specifications, under their declared names. Raises Refusal (ContractMismatch)."""
    if declared is None:
        return seen
    order = align_names([spec.name for spec in declared], [spec.name for spec in seen], "output")
    for spec, at in zip(declared, order, strict=True):
        actual = seen[at]
        same = len(spec.shape) == len(actual.shape) and all(
            -1 in (want, have) or want == have for want, have in zip(spec.shape, actual.shape, strict=True)
        )
        if spec.datatype is not actual.datatype or not same:
            raise Refusal(
                "ContractMismatch",
                f"output '{spec.name}': declared {spec.datatype} {list(spec.shape)}, "
                f"the model gives {actual.datatype} {list(actual.shape)}",
            )
    return declared
