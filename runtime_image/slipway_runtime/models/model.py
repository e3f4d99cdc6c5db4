"""What the serving side knows of a model, whatever made it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from slipway_runtime.tensors.tensor import Signature, Tensor


class OutOfMemory(Exception):  # noqa: N818 - a condition of the device, handled by running less at once
    """The device has not enough memory for this execution."""


class DeviceLost(Exception):  # noqa: N818 - a condition of the device
    """The device's context is damaged beyond repair; only a new process helps."""


class Model(Protocol):
    """A loaded model."""

    @property
    def platform(self) -> str:
        """The platform name reported in metadata, e.g. ``pytorch_torchscript``."""

    @property
    def signature(self) -> Signature:
        """Inputs and outputs."""

    @property
    def on_accelerator(self) -> bool:
        """Whether it computes on a GPU (and must then never run on the event-loop thread)."""

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the model. May raise anything; OutOfMemory and DeviceLost have a meaning to the caller."""


class Program(Model, Protocol):
    """A model whose signature is still being settled."""

    def with_signature(self, signature: Signature) -> Self:
        """The same program under another signature (inputs in the same order)."""
