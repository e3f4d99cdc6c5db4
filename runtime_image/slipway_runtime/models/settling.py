"""Settling a model's signature: what is declared, what the model says itself, and what probing it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipway_runtime import journal
from slipway_runtime.models.contract import Direction, agree, align_names
from slipway_runtime.models.model import Program
from slipway_runtime.models.probing import Observation, observe
from slipway_runtime.refusal import Refusal
from slipway_runtime.tensors.tensor import Signature, TensorSpec

# Sizes tried for dimensions that are free and not the batch: some models need more than one element.
_FREE_SIZES = (1, 8, 32, 64, 224)

Specs = tuple[TensorSpec, ...]


@dataclass(frozen=True)
class LoadedModel:
    """A model, and what probing it found: ``free`` is the size that works for free dimensions, None if
    no synthetic input did. ``max_rows`` is the largest batch its program allows, if it says so.
    """

    program: Program
    free: int | None
    max_rows: int | None = None


@dataclass(frozen=True)
class Contract:
    """Declared inputs and outputs; None where the user declared nothing."""

    inputs: Specs | None
    outputs: Specs | None


def self_described(program: Program, contract: Contract) -> LoadedModel:
    """A program that knows its own signature: probing finds out whether its rows can be batched."""
    signature = program.signature
    loaded = probed(program, contract)
    batched = loaded.program.signature.batched
    return LoadedModel(
        program.with_signature(Signature(signature.inputs, signature.outputs, batched)),
        loaded.free,
        loaded.max_rows,
    )


def aligned(declared: Specs | None, actual: Specs, direction: Direction) -> Specs:
    """The declared specifications (or the model's own), in agreement with the model. Raises Refusal."""
    if declared is None:
        return actual
    order = align_names([spec.name for spec in declared], [spec.name for spec in actual], direction)
    return tuple(agree(spec, actual[at], direction) for spec, at in zip(declared, order, strict=True))


def first_that_works(
    program: Program, inputs: Specs, causes: list[str] | None = None
) -> tuple[Observation, int] | None:
    """What running the program shows, and the size of free dimensions that worked; None if none did.

    ``causes`` gets what the program said when it failed.
    """
    sizes = _FREE_SIZES if _has_free(inputs) else _FREE_SIZES[:1]
    for free in sizes:
        try:
            return observe(program, inputs, free), free
        except Refusal:
            raise
        except Exception as error:
            cause = str(error).strip().rpartition("\n")[2][:300]
            journal.record("probe-failed", free=free, cause=cause)
            if causes is not None:
                causes.append(cause)
    return None


def _has_free(specs: Sequence[TensorSpec]) -> bool:
    return any(-1 in spec.shape[1:] for spec in specs)


def probed(program: Program, contract: Contract) -> LoadedModel:
    """Run the program on inputs of its declared signature: it must take them and give what is declared."""
    inputs = program.signature.inputs
    causes: list[str] = []
    seen = first_that_works(program, inputs, causes)
    if seen is None:
        if not _has_free(inputs):
            text = "the model fails on inputs of the declared datatypes and shapes"
            raise Refusal("ContractMismatch", f"{text}: {causes[-1]}")
        outputs = contract.outputs or program.signature.outputs
        open_outputs = Signature(inputs, outputs, batched=False, open=not outputs)
        return LoadedModel(program.with_signature(open_outputs), None)
    observation, free = seen
    outputs = checked_outputs(_loosened(observation.outputs, inputs), contract.outputs)
    return LoadedModel(program.with_signature(Signature(inputs, outputs, observation.row_wise)), free)


def _loosened(outputs: Specs, inputs: Specs) -> Specs:
    """Where inputs have free dimensions, a probe cannot tell which sizes of the outputs follow them."""
    if not _has_free(inputs):
        return outputs
    return tuple(
        TensorSpec(spec.name, spec.datatype, (spec.shape[0], *(-1 for _ in spec.shape[1:])) if spec.shape else ())
        for spec in outputs
    )


def checked_outputs(seen: Specs, declared: Specs | None) -> Specs:
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
