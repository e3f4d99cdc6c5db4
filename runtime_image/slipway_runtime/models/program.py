"""A torch program behind the protocol's tensors: names in, names out, one call between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from slipway_runtime.models.contract import align_names
from slipway_runtime.models.model import DeviceLost, OutOfMemory
from slipway_runtime.models.torch_tensors import from_torch, named_outputs, to_torch
from slipway_runtime.tensors.tensor import Signature, Tensor

# What CUDA says when its context cannot be used any more by this process.
_LOST = ("device-side assert", "illegal memory access", "unspecified launch failure", "CUDA error: ECC")
# What torch says when the CPU's memory is not enough; there is no exception class for it.
_CPU_MEMORY = "can't allocate memory"

Call = Callable[[Sequence[torch.Tensor]], Any]


@dataclass(frozen=True)
class TorchProgram:
    """A loaded program.

    ``call`` takes tensors in the order of ``signature.inputs``. ``dtype`` is the floating-point type of
    its weights when that is not the one of the signature; floating inputs are cast to it and outputs back.
    """

    platform: str
    call: Call
    signature: Signature
    device: torch.device
    dtype: torch.dtype | None = None

    @property
    def on_accelerator(self) -> bool:
        """Whether it computes on a GPU."""
        return bool(self.device.type != "cpu")

    def with_signature(self, signature: Signature) -> TorchProgram:
        """The same program under another signature (inputs in the same order)."""
        return replace(self, signature=signature)

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the program on the device; the outputs are on the CPU, under the signature's names."""
        by_name = {tensor.name: tensor for tensor in inputs}
        arguments = [self._argument(by_name[spec.name]) for spec in self.signature.inputs]
        try:
            with torch.inference_mode():
                result = self.call(arguments)
                named = [(name, self._cast_back(value)) for name, value in named_outputs(result)]
                outputs = [from_torch(name, value) for name, value in named]
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise OutOfMemory(str(error)) from error
        except RuntimeError as error:
            if _CPU_MEMORY in str(error):
                raise OutOfMemory(str(error)) from error
            if any(sign in str(error) for sign in _LOST):
                raise DeviceLost(str(error)) from error
            raise
        return self._renamed(outputs)

    def _argument(self, tensor: Tensor) -> torch.Tensor:
        value = to_torch(tensor, self.device)
        if self.dtype is not None and value.is_floating_point():
            return value.to(self.dtype)
        return value

    def _cast_back(self, value: Any) -> Any:
        if self.dtype is not None and isinstance(value, torch.Tensor) and value.dtype is self.dtype:
            return value.to(torch.float32)
        return value

    def _renamed(self, outputs: list[Tensor]) -> tuple[Tensor, ...]:
        wanted = self.signature.outputs
        if not wanted:
            return tuple(outputs)
        names = [spec.name for spec in wanted]
        order = align_names(names, [tensor.name for tensor in outputs], "output")
        return tuple(
            Tensor(name, outputs[position].datatype, outputs[position].array)
            for name, position in zip(names, order, strict=True)
        )
