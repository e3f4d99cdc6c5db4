"""Declared inputs and outputs: what the user says about a model, and whether the model agrees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

Direction = Literal["input", "output"]


class _Declared(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]


def parse_declared(text: str, direction: Direction) -> tuple[TensorSpec, ...] | None:
    """Specifications in the JSON of ``--inputs`` or ``--outputs``; None where nothing was declared.

    Raises Refusal (exit code 64).
    """
    if not text:
        return None
    try:
        entries = msgspec.json.decode(text, type=list[_Declared])
        specs = tuple(TensorSpec(one.name, Datatype(one.datatype), tuple(one.shape)) for one in entries)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Refusal("BadContract", f"--{direction}s: {error}", ExitCode.BAD_ARGUMENTS) from error
    if any(size < -1 for spec in specs for size in spec.shape):
        raise Refusal("BadContract", f"--{direction}s: a dimension is -1 or more", ExitCode.BAD_ARGUMENTS)
    if len({spec.name for spec in specs}) != len(specs):
        raise Refusal("BadContract", f"--{direction}s: a name is given twice", ExitCode.BAD_ARGUMENTS)
    return specs or None


def align_names(declared: Sequence[str], actual: Sequence[str], direction: Direction) -> list[int]:
    """For each declared name the position of the model's tensor it stands for.

    Names that are the model's own are matched by name. When the model knows none of them (tracing
    invents names such as ``x`` or ``linear_1``) the order counts. Raises Refusal for anything between.
    """
    if len(declared) != len(actual):
        raise Refusal(
            "ContractMismatch",
            f"{len(declared)} {direction}s are declared, the model has {len(actual)}: {', '.join(actual)}",
        )
    if set(declared) == set(actual):
        return [list(actual).index(name) for name in declared]
    known = [name for name in declared if name in actual]
    if known:
        unknown = next(name for name in declared if name not in actual)
        raise Refusal(
            "ContractMismatch",
            f"{direction} '{unknown}' is declared, the model has only: {', '.join(actual)}",
        )
    return list(range(len(declared)))


def agree(declared: TensorSpec, actual: TensorSpec, direction: Direction) -> TensorSpec:
    """The declared specification, if the model can keep it. Raises Refusal (ContractMismatch).

    A declared size may be narrower than what the model allows (-1), never wider.
    """
    where = f"{direction} '{declared.name}'"
    if declared.datatype is not actual.datatype:
        raise Refusal("ContractMismatch", f"{where}: declared {declared.datatype}, the model has {actual.datatype}")
    fits = len(declared.shape) == len(actual.shape) and all(
        have in (-1, want) for want, have in zip(declared.shape, actual.shape, strict=True)
    )
    if not fits:
        raise Refusal(
            "ContractMismatch",
            f"{where}: declared shape {list(declared.shape)}, the model has {list(actual.shape)}",
        )
    return declared
