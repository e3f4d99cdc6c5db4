"""A named tensor value and the specification it is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slipway_runtime.tensors.datatypes import Datatype

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value: ``array`` has the tensor's shape and ``datatype.numpy`` as dtype (BF16: raw bits)."""

    name: str
    datatype: Datatype
    array: Array

    @property
    def shape(self) -> Shape:
        """The shape; () for a scalar."""
        return tuple(self.array.shape)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a model takes or gives under a name. A dimension of -1 is free."""

    name: str
    datatype: Datatype
    shape: Shape

    def mismatch(self, tensor: Tensor) -> str | None:
        """Why ``tensor`` does not satisfy this specification, or None."""
        if tensor.datatype is not self.datatype:
            return f"datatype {tensor.datatype}, the model takes {self.datatype}"
        got = tensor.shape
        if len(got) != len(self.shape) or any(
            want not in (-1, have) for want, have in zip(self.shape, got, strict=True)
        ):
            return f"shape {list(got)}, the model takes {list(self.shape)}"
        return None


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs and outputs of a model.

    ``batched`` says that dimension 0 of every tensor counts independent rows, so that requests can be
    run together. An ``open`` signature knows input names only: datatypes and shapes were neither
    declared nor found out, and the model itself judges them. A model that ``streams`` answers in any number of parts
    (``decoupled`` in the protocol's words), and is not batched.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool
    open: bool = False
    streams: bool = False

    def input(self, name: str) -> TensorSpec | None:
        """The input of that name."""
        return next((spec for spec in self.inputs if spec.name == name), None)
