"""Loading torch.export programs (.pt2)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slipway_runtime.artefact.pt2 import ExportedSignature
from slipway_runtime.models.contract import align_names
from slipway_runtime.models.program import Call
from slipway_runtime.refusal import Refusal

PLATFORM = "pytorch_export"


@dataclass(frozen=True)
class ExportedModule:
    """A loaded program and the names of its inputs in the order of its signature."""

    module: Any
    signature: ExportedSignature

    def call_for(self, names: Sequence[str]) -> Call:
        """A call that takes tensors in the order of ``names``."""
        own = [spec.name for spec in self.signature.inputs]
        order = align_names(names, own, "input")
        positions = [order.index(index) for index in range(len(order))]
        module = self.module
        by_position = self.signature.positional
        keywords = own[by_position:]

        def call(arguments: Sequence[torch.Tensor]) -> Any:
            ordered = [arguments[position] for position in positions]
            return module(*ordered[:by_position], **dict(zip(keywords, ordered[by_position:], strict=True)))

        return call


def load_exported(path: Path, signature: ExportedSignature, device: torch.device) -> ExportedModule:
    """Load a program whose archive was scanned. Raises Refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with path.open("rb") as stream:
                program = torch.export.load(stream)
            if device.type != "cpu":
                program = _moved(program, device)
            module = program.module(check_guards=False)
        except (RuntimeError, ValueError, KeyError, AttributeError, OSError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise Refusal("LoadFailed", f"torch cannot load the exported program: {first_line}") from error
    return ExportedModule(module, signature)


def _moved(program: Any, device: torch.device) -> Any:
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, device)
