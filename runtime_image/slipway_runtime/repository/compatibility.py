"""Whether clients of one model can go on as before with another. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slipway_runtime.tensors.tensor import Signature, TensorSpec


def incompatibility(old: Signature, new: Signature) -> str | None:
    """What clients of ``old`` would miss in ``new``, or None. Further outputs are no hindrance.

    Where one of the two does not know datatypes and shapes, only names count.
    """
    names_only = old.open or new.open
    if old.streams != new.streams:
        return "it answers in parts" if new.streams else "it does not answer in parts"
    return (
        _lost("input", old.inputs, new.inputs, names_only)
        or _added(old.inputs, new.inputs)
        or (None if names_only else _resized(old.inputs, new.inputs))
        or _lost("output", old.outputs, new.outputs, names_only)
    )


def _lost(what: str, old: Sequence[TensorSpec], new: Sequence[TensorSpec], names_only: bool) -> str | None:
    by_name = {spec.name: spec for spec in new}
    for spec in old:
        found = by_name.get(spec.name)
        if found is None:
            return f"it has no {what} '{spec.name}'"
        if names_only:
            continue
        if found.datatype is not spec.datatype:
            return f"{what} '{spec.name}' is {found.datatype}, not {spec.datatype}"
        if len(found.shape) != len(spec.shape):
            return f"{what} '{spec.name}' has {len(found.shape)} dimensions, not {len(spec.shape)}"
    return None


def _added(old: Sequence[TensorSpec], new: Sequence[TensorSpec]) -> str | None:
    known = {spec.name for spec in old}
    return next((f"it wants an input '{spec.name}' as well" for spec in new if spec.name not in known), None)


def _resized(old: Sequence[TensorSpec], new: Sequence[TensorSpec]) -> str | None:
    """An input of a fixed size is of another: no request that fitted can be answered. Names and ranks are the same."""
    by_name = {spec.name: spec for spec in new}
    for spec in old:
        shape = by_name[spec.name].shape
        if any(-1 not in (was, size) and was != size for was, size in zip(spec.shape, shape, strict=True)):
            return f"input '{spec.name}' has shape {list(shape)}, not {list(spec.shape)}"
    return None
