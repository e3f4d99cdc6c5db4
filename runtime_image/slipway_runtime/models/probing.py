"""Synthetic inputs, and what running a model on them says about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipway_runtime.models.model import Model
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape, Tensor, TensorSpec

Tensors = tuple[Tensor, ...]
_SEED = 20_260_101


def synthetic(specs: Sequence[TensorSpec], rows: int, free: int = 1) -> Tensors:
    """Inputs for ``specs``: ``rows`` in a free first dimension, ``free`` in other free ones.

    Floats are small random numbers; integers are 0 or 1, which are valid indices nearly everywhere.
    The same arguments always give the same tensors.
    """
    random = np.random.default_rng(_SEED)
    return tuple(
        Tensor(spec.name, spec.datatype, _values(spec.datatype, _sized(spec.shape, rows, free), random))
        for spec in specs
    )


def _sized(shape: Shape, rows: int, free: int) -> Shape:
    return tuple(size if size != -1 else rows if position == 0 else free for position, size in enumerate(shape))


def _values(datatype: Datatype, shape: Shape, random: np.random.Generator) -> Array:
    if datatype is Datatype.BYTES:
        return np.full(shape, b"", dtype=object)
    if datatype is Datatype.BF16:
        high_half = random.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16
        return np.asarray(high_half, dtype=datatype.numpy)
    if datatype.is_float:
        return np.asarray(random.standard_normal(shape), dtype=datatype.numpy)
    return np.asarray(random.integers(0, 2, shape), dtype=datatype.numpy)


@dataclass(frozen=True)
class Observation:
    """What a probe saw: the outputs' specifications, and whether rows are independent of one another."""

    outputs: tuple[TensorSpec, ...]
    row_wise: bool


def observe(model: Model, inputs: Sequence[TensorSpec], free: int) -> Observation:
    """Run the model on one row, and on two where the first dimension is free. Raises what the model raises."""
    single = model.infer(synthetic(inputs, 1, free))
    specs = tuple(TensorSpec(one.name, one.datatype, one.shape) for one in single)
    if not inputs or not all(spec.shape and spec.shape[0] == -1 for spec in inputs):
        return Observation(specs, False)
    pair_inputs = synthetic(inputs, 2, free)
    try:
        pair = model.infer(pair_inputs)
        second = model.infer(tuple(Tensor(one.name, one.datatype, one.array[1:]) for one in pair_inputs))
    except Exception:
        return Observation(specs, False)
    if not _independent(pair, second):
        return Observation(specs, False)
    return Observation(tuple(TensorSpec(s.name, s.datatype, (-1, *s.shape[1:])) for s in specs), True)


def _independent(pair: Tensors, second: Tensors) -> bool:
    """Whether row 1 of a run of two rows is what the row gives when it runs alone."""
    return len(pair) == len(second) and all(
        both.shape == (2, *alone.shape[1:])
        and alone.shape[:1] == (1,)
        and close(Tensor(both.name, both.datatype, both.array[1:]), alone)
        for both, alone in zip(pair, second, strict=True)
    )


def close(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of equal shape hold the same values, as far as their datatype can tell."""
    if not left.datatype.is_float:
        return bool(np.array_equal(left.array, right.array))
    tolerance = 1e-2 if left.datatype in (Datatype.FP16, Datatype.BF16) else 1e-3
    return bool(np.allclose(floats(left), floats(right), rtol=tolerance, atol=tolerance, equal_nan=True))


def floats(tensor: Tensor) -> Array:
    """The values of a floating-point tensor as NumPy floats (BF16, whose bits are carried, as float32)."""
    if tensor.datatype is Datatype.BF16:
        return (tensor.array.astype(np.uint32) << 16).view(np.float32)
    return tensor.array
