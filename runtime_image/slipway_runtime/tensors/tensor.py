"""A named tensor value and the specification it is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from slipway_runtime.tensors.datatypes import Datatype

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]


class Tensor(msgspec.Struct, frozen=True, eq=False):
    """A value: ``array`` has the tensor's shape and ``datatype.numpy`` as dtype (BF16: raw bits).

    (What is made for every request is a Struct: that is made several times as fast as a frozen dataclass.)
    """

    name: str
    datatype: Datatype
    array: Array

    @property
    def shape(self) -> Shape:
        """The shape; () for a scalar."""
        shape: Shape = self.array.shape
        return shape


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
        wanted, got = self.shape, tensor.array.shape
        fits = len(got) == len(wanted)
        if fits and wanted != got:
            for want, have in zip(wanted, got, strict=True):
                if want not in (-1, have):
                    fits = False
        return None if fits else f"shape {list(got)}, the model takes {list(wanted)}"


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
        for spec in self.inputs:
            if spec.name == name:
                return spec
        return None
