"""The declared tensors of a version against those that its server reports."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.api.versions import TensorSpec

__all__ = ["signature_mismatch"]


def signature_mismatch(side: str, declared: Sequence[TensorSpec], reported: Any) -> str:
    """What differs on a side (``input`` or ``output``), in words; empty when all is as declared or nothing is.

    ``reported`` is the list of the server's metadata. An input that the server wants must be declared, since requests
    by the declared contract would lack it; outputs beyond the declared ones do no harm. -1 stands for any size.
    Raises ValueError for metadata of another form.
    """
    if not declared:
        return ""
    tensors = {_name(tensor): tensor for tensor in _list(reported, side)}
    for spec in declared:
        tensor = tensors.get(spec.name)
        if tensor is None:
            known = ", ".join(sorted(tensors)) or "none"
            return f"{side} {spec.name} is declared, but the model has {known}"
        if tensor.get("datatype") != spec.datatype:
            return f"{side} {spec.name} is declared as {spec.datatype}, but the model has {tensor.get('datatype')}"
        shape = tuple(_list(tensor.get("shape"), f"shape of {side} {spec.name}"))
        if not _fits(spec.shape, shape):
            return f"{side} {spec.name} is declared with shape {list(spec.shape)}, but the model has {list(shape)}"
    extra = sorted(set(tensors) - {spec.name for spec in declared})
    if side == "input" and extra:
        return f"the model wants input {', '.join(extra)}, which is not declared"
    return ""


def _fits(declared: Sequence[int], reported: Sequence[Any]) -> bool:
    """Whether shapes agree where both say a size."""
    if len(declared) != len(reported):
        return False
    return all(-1 in (wanted, given) or wanted == given for wanted, given in zip(declared, reported, strict=True))


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"the server's metadata has no list as {what}")
    return value


def _name(tensor: Any) -> str:
    if not isinstance(tensor, Mapping) or not isinstance(tensor.get("name"), str):
        raise ValueError("the server's metadata has a tensor without a name")
    return str(tensor["name"])
