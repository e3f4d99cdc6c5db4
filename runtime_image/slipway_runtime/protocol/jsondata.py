"""Tensor data as JSON: nested or flat lists, row-major."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape

_INTEGERS = "iu"
_NUMBERS = "iuf"


def decode_json(name: str, datatype: Datatype, shape: Shape, data: Any) -> Array:
    """The tensor that the JSON value ``data`` describes.

    ``null`` among the numbers of a float tensor means NaN, as Triton's clients write and read it.
    Raises RequestFailure (400) naming ``name`` for a wrong count, type or range.
    """
    if not datatype.has_json_form:
        raise invalid(f"input '{name}': {datatype} has no JSON form, send it as binary data")
    if not isinstance(data, list):
        raise invalid(f"input '{name}': data must be a list")
    if datatype is Datatype.BYTES:
        array = _strings(name, data)
    elif datatype is Datatype.BOOL:
        array = _parsed(name, data)
        if array.size and array.dtype.kind != "b":
            raise _wrong_type(name, datatype)
    elif datatype.is_float:
        array = _floats(name, datatype, data)
    else:
        array = _integers(name, datatype, data)
    count = math.prod(shape)
    if array.size != count:
        raise invalid(f"input '{name}': {array.size} elements, shape {list(shape)} needs {count}")
    return array.astype(datatype.numpy, copy=False).reshape(shape)


def _wrong_type(name: str, datatype: Datatype) -> Exception:
    return invalid(f"input '{name}': the data holds values that are no {datatype}")


def _parsed(name: str, data: list[Any]) -> Array:
    try:
        return np.array(data)
    except (ValueError, OverflowError, TypeError) as error:
        raise invalid(f"input '{name}': the lists in data are not of equal length") from error


def _flat(data: list[Any]) -> list[Any]:
    """All leaves of nested lists; a level at a time, so that deep nesting costs no stack."""
    while any(isinstance(item, list) for item in data):
        data = list(chain.from_iterable(item if isinstance(item, list) else [item] for item in data))
    return data


def _strings(name: str, data: list[Any]) -> Array:
    leaves = _flat(data)
    if not all(isinstance(leaf, str) for leaf in leaves):
        raise invalid(f"input '{name}': BYTES data in JSON must be strings, send other bytes as binary data")
    array = np.empty(len(leaves), dtype=object)
    try:
        array[:] = [leaf.encode() for leaf in leaves]
    except UnicodeEncodeError as error:
        raise invalid(f"input '{name}': the data holds a lone surrogate") from error
    return array


def _floats(name: str, datatype: Datatype, data: list[Any]) -> Array:
    array = _parsed(name, data)
    if array.dtype == object:
        leaves = [float("nan") if leaf is None else leaf for leaf in _flat(data)]
        array = _parsed(name, leaves)
    if array.size and array.dtype.kind not in _NUMBERS:
        raise _wrong_type(name, datatype)
    with np.errstate(over="ignore"):
        return array.astype(datatype.numpy)


def _integers(name: str, datatype: Datatype, data: list[Any]) -> Array:
    array = _parsed(name, data)
    if array.size and array.dtype.kind not in _INTEGERS:
        # NumPy makes floats or objects of lists that mix small and very large integers.
        leaves = _flat(data)
        if not all(type(leaf) is int for leaf in leaves):
            raise _wrong_type(name, datatype)
        array = np.array(leaves, dtype=object)
    limits = np.iinfo(datatype.numpy)
    if array.size and (int(array.min()) < limits.min or int(array.max()) > limits.max):
        raise invalid(f"input '{name}': the data holds values out of the range of {datatype}")
    return array.astype(datatype.numpy)
