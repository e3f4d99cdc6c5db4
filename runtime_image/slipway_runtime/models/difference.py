"""How far the answers of two models lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipway_runtime.models.probing import floats
from slipway_runtime.tensors.tensor import Tensor


@dataclass(frozen=True)
class Tolerance:
    """``|other - reference| <= absolute + relative * |reference|`` for every element."""

    relative: float = 1e-3
    absolute: float = 1e-5


@dataclass(frozen=True)
class Difference:
    """The largest differences in one output, and whether all elements are within the tolerance.

    ``relative`` is against the reference's own element. ``text`` says why there is nothing to compare.
    """

    output: str
    absolute: float
    relative: float
    within: bool
    text: str = ""


def differences(reference: Sequence[Tensor], other: Sequence[Tensor], tolerance: Tolerance) -> list[Difference]:
    """For each output of the reference, how the other's output of that name differs."""
    by_name = {tensor.name: tensor for tensor in other}
    return [_difference(tensor, by_name.get(tensor.name), tolerance) for tensor in reference]


def worst(found: Sequence[Difference]) -> list[Difference]:
    """One entry for each output: the largest differences of all comparisons."""
    merged: dict[str, Difference] = {}
    for one in found:
        before = merged.get(one.output, one)
        merged[one.output] = Difference(
            one.output,
            max(before.absolute, one.absolute),
            max(before.relative, one.relative),
            before.within and one.within,
            before.text or one.text,
        )
    return list(merged.values())


def _difference(reference: Tensor, other: Tensor | None, tolerance: Tolerance) -> Difference:
    if other is None:
        return Difference(reference.name, np.inf, np.inf, False, "missing")
    if other.shape != reference.shape or other.datatype is not reference.datatype:
        text = f"{reference.datatype} {list(reference.shape)} against {other.datatype} {list(other.shape)}"
        return Difference(reference.name, np.inf, np.inf, False, text)
    if not reference.datatype.is_float:
        equal = bool(np.array_equal(reference.array, other.array))
        return Difference(reference.name, 0.0 if equal else np.inf, 0.0 if equal else np.inf, equal)
    return _of_floats(reference, other, tolerance)


def _of_floats(reference: Tensor, other: Tensor, tolerance: Tolerance) -> Difference:
    expected, actual = (floats(one).astype(np.float64) for one in (reference, other))
    same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where(same, 0.0, np.abs(actual - expected))
        ratio = np.where(same, 0.0, apart / np.abs(expected))
        within = bool(np.all(same | (apart <= tolerance.absolute + tolerance.relative * np.abs(expected))))
    largest = (float(np.nan_to_num(np.max(one, initial=0.0), nan=np.inf)) for one in (apart, ratio))
    absolute, relative = largest
    return Difference(reference.name, absolute, relative, within)
