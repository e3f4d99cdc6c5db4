"""Whether two answers to the same request agree.

``Exact``: equal bytes. ``AllClose``: floats within a relative 1e-3 and an absolute 1e-5, everything else equal.
``ArgMax``: the largest value of every row of a float output at the same place. ``TopK``: the largest value of every
row among the five largest of the other answer, both ways. ``Auto``: per output, ArgMax where the rows are
probabilities, AllClose for other floats, Exact for the rest. Outputs must always have the same names, datatypes and
shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from slipway_runtime.shadow.config import Comparator
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Tensor

RELATIVE, ABSOLUTE = 1e-3, 1e-5
TOP = 5
_SUM_TOLERANCE = 1e-2


def agree(ours: Sequence[Tensor], theirs: Sequence[Tensor], comparator: Comparator) -> bool:
    """Whether all outputs agree; ``ours`` decides how an output is compared."""
    others = {tensor.name: tensor for tensor in theirs}
    return len(others) == len(ours) and all(
        (other := others.get(tensor.name)) is not None and _agree(tensor, other, comparator) for tensor in ours
    )


def _agree(ours: Tensor, theirs: Tensor, comparator: Comparator) -> bool:
    if ours.datatype is not theirs.datatype or ours.shape != theirs.shape:
        return False
    if comparator is Comparator.EXACT or not ours.datatype.is_float:
        return _exact(ours.array, theirs.array)
    left, right = _floats(ours), _floats(theirs)
    if comparator is Comparator.AUTO:
        comparator = Comparator.ARG_MAX if _is_probabilities(left) else Comparator.ALL_CLOSE
    return _FLOAT_COMPARISONS[comparator](left, right)


def _exact(ours: Array, theirs: Array) -> bool:
    if ours.dtype == object:
        return bool(np.array_equal(ours, theirs))
    return ours.tobytes() == theirs.tobytes()


def _floats(tensor: Tensor) -> Array:
    """The values as float64; BF16 travels as bits, the upper half of a float32."""
    if tensor.datatype is Datatype.BF16:
        return (tensor.array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return tensor.array.astype(np.float64)


def _is_probabilities(values: Array) -> bool:
    if values.ndim < 2 or values.shape[-1] < 2 or not values.size:
        return False
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1, atol=_SUM_TOLERANCE))


def _all_close(ours: Array, theirs: Array) -> bool:
    return bool(np.allclose(theirs, ours, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True))


def _same_largest(ours: Array, theirs: Array) -> bool:
    if not ours.ndim or not ours.size:
        return _all_close(ours, theirs)
    return bool((ours.argmax(axis=-1) == theirs.argmax(axis=-1)).all())


def _among_largest(ours: Array, theirs: Array) -> bool:
    if not ours.ndim or not ours.size:
        return _all_close(ours, theirs)
    return _leads(ours, theirs) and _leads(theirs, ours)


def _leads(one: Array, other: Array) -> bool:
    """Whether the largest value of each row of ``one`` is among the largest of the same row of ``other``."""
    best = one.argmax(axis=-1)[..., np.newaxis]
    larger = (other > np.take_along_axis(other, best, axis=-1)).sum(axis=-1)
    return bool((larger < min(TOP, other.shape[-1])).all())


_FLOAT_COMPARISONS: dict[Comparator, Callable[[Array, Array], bool]] = {
    Comparator.ALL_CLOSE: _all_close,
    Comparator.ARG_MAX: _same_largest,
    Comparator.TOP_K: _among_largest,
}
