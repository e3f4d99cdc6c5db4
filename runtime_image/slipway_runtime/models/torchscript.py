"""Loading TorchScript. Its archive holds a program, not a signature: that is declared or found out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slipway_runtime import journal
from slipway_runtime.models.contract import align_names
from slipway_runtime.models.precision import apply_precision
from slipway_runtime.models.program import Call
from slipway_runtime.refusal import Refusal
from slipway_runtime.settings import Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

PLATFORM = "pytorch_torchscript"
_MATRIX, _SEQUENCE_KERNEL, _IMAGE_KERNEL = 2, 3, 4


_TENSORS = ("Tensor", "Optional[Tensor]")


@dataclass(frozen=True)
class TorchModule:
    """A module, the names of its forward's arguments, and the dtype its floating inputs need."""

    module: Any
    argument_names: tuple[str, ...]
    """Those it has to be given."""
    dtype: torch.dtype | None = None
    optional_names: tuple[str, ...] = ()
    """Those that may be tensors: they are inputs where they are declared."""

    def call_for(self, names: Sequence[str]) -> Call:
        """A call that takes tensors in the order of ``names``; those that may be left out are given by name."""
        wanted = tuple(name for name in self.optional_names if name in names)
        order = align_names(names, (*self.argument_names, *wanted), "input")
        positions = [order.index(index) for index in range(len(order))]
        first, rest = positions[: len(self.argument_names)], positions[len(self.argument_names) :]
        module = self.module

        def call(arguments: Sequence[torch.Tensor]) -> Any:
            return module(*(arguments[position] for position in first))

        def call_by_name(arguments: Sequence[torch.Tensor]) -> Any:
            named = {name: arguments[position] for name, position in zip(wanted, rest, strict=True)}
            return module(*(arguments[position] for position in first), **named)

        return call_by_name if wanted else call


def load_script(path: Path, device: torch.device, precision: Precision) -> TorchModule:
    """Load the module, move it, freeze it where it can be frozen. Raises Refusal."""
    with warnings.catch_warnings():
        # torch.jit announces its retirement on every call; the operator of a server cannot act on it.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            module = torch.jit.load(str(path), map_location=device)
        except (RuntimeError, ValueError, OSError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise Refusal("LoadFailed", f"torch cannot load the TorchScript program: {first_line}") from error
        module.eval()
        module, dtype = apply_precision(module, precision, device, scripted=True)
        arguments = module.forward.schema.arguments[1:]
        names = tuple(one.name for one in arguments if not one.has_default_value())
        unfit = [one.name for one in arguments if one.name in names and str(one.type) != "Tensor"]
        if unfit:
            raise Refusal("UnsupportedModel", f"argument '{unfit[0]}' of forward is no tensor")
        optional = tuple(one.name for one in arguments if one.name not in names and str(one.type) in _TENSORS)
        return TorchModule(_frozen(module), names, dtype, optional)


def _frozen(module: Any) -> Any:
    """Freezing folds constants and halves the overhead of small models; some modules do not allow it."""
    try:
        return torch.jit.freeze(module)
    except RuntimeError as error:
        journal.record("not-frozen", cause=str(error).strip().partition("\n")[0])
        return module


def guess_inputs(module: TorchModule) -> list[tuple[TensorSpec, ...]]:
    """What a module of one argument probably takes, judged by its first weights; best guess first.

    A guess is only for warm-up, metadata and finding out whether rows are independent. Requests of other
    shapes are still given to the model.
    """
    if len(module.argument_names) != 1:
        return []
    name = module.argument_names[0]
    guesses: list[tuple[TensorSpec, ...]] = []
    for weight in _weights(module.module):
        size = weight.shape[1] if weight.dim() > 1 else weight.shape[0]
        if weight.dim() == _MATRIX:
            guesses.append((TensorSpec(name, Datatype.FP32, (-1, size)),))
            guesses.append((TensorSpec(name, Datatype.INT64, (-1, -1)),))
        elif weight.dim() == _SEQUENCE_KERNEL:
            guesses.append((TensorSpec(name, Datatype.FP32, (-1, size, -1)),))
        elif weight.dim() == _IMAGE_KERNEL:
            guesses.append((TensorSpec(name, Datatype.FP32, (-1, size, -1, -1)),))
        break
    return guesses


def _weights(module: Any) -> list[torch.Tensor]:
    """Tensors in order of use: the parameters, or (after freezing) the constants of the graph."""
    parameters = [one for one in module.parameters() if one.dim() > 1]
    if parameters:
        return parameters
    if not hasattr(module, "graph"):
        return []
    constants = [node.t("value") for node in module.graph.findAllNodes("prim::Constant") if _is_tensor(node)]
    return [one for one in constants if one.dim() > 1 and one.is_floating_point()]


def _is_tensor(node: Any) -> bool:
    return bool(node.hasAttribute("value") and node.kindOf("value") == "t")
