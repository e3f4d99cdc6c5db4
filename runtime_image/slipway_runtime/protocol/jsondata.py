"""Tensor data as JSON: nested or flat lists, row-major."""

from __future__ import annotations

import json
import math
from array import array
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import orjson

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.protocol.longlists import INFINITE, LONG, holds_more_strings, read_numbers
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape

_INTEGERS = "iu"
_NUMBERS = "iuf"
_KINDS = {Datatype.BYTES: str, Datatype.BOOL: bool}
"""What is no number."""
_FLAT_FLOATS = msgspec.json.Decoder(list[float])
# Deeper lists are read as they come.
_DEEPEST = 8


def decode_text(name: str, datatype: Datatype, shape: Shape, text: msgspec.Raw) -> Array:
    """The tensor that a JSON text describes; see ``decode_json``."""
    return _shaped(name, datatype, shape, read_text(name, datatype, memoryview(text), math.prod(shape), len(shape)))


def read_text(name: str, datatype: Datatype, text: memoryview, most: int, rank: int = 1) -> Array:
    """The elements that valid JSON ``text`` holds, in one of their shapes and the datatype or a related one.

    Values of one type, in a flat list or in lists ``rank`` deep, are read at once, each checked by the parser; numbers
    in a long text in pieces. Raises RequestFailure (400), for more than ``most`` elements in a long text as well.
    """
    if len(text) < LONG:
        return _read_at_once(name, datatype, text, rank)
    if not datatype.has_json_form:
        raise _no_json_form(name, datatype)
    if datatype is not Datatype.BYTES:
        return read_numbers(name, datatype, text, most, lambda piece: _read_at_once(name, datatype, piece, 1))
    if holds_more_strings(text, most):
        raise invalid(f"input '{name}': more elements than its shape has")
    return _read_at_once(name, datatype, text, rank)


def _read_at_once(name: str, datatype: Datatype, text: bytes | memoryview, rank: int) -> Array:
    for decoder in _decoders(datatype, rank):
        try:
            values = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        if datatype is Datatype.FP32 and decoder is _FLAT_FLOATS:
            # The fastest way from a list to four-byte floats; values beyond their range become infinite.
            return np.frombuffer(array("f", values), dtype=datatype.numpy)
        return _typed(name, datatype, values)
    return _untyped(name, datatype, _parsed_text(name, text))


def _parsed_text(name: str, text: bytes | memoryview) -> Any:
    try:
        if isinstance(text, bytes) and INFINITE in text:
            return json.loads(text, parse_float=_float)
        return orjson.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"input '{name}': data is not valid JSON") from error


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value) and text.removeprefix("-") != INFINITE.decode():
        raise ValueError(text)
    return value


@lru_cache(maxsize=256)
def _decoders(datatype: Datatype, rank: int) -> tuple[msgspec.json.Decoder[Any], ...]:
    """Parsers of flat and of nested lists; none where there is no JSON form."""
    if not datatype.has_json_form:
        return ()
    kind: Any = _KINDS.get(datatype, float if datatype.is_float else int)
    flat = _FLAT_FLOATS if kind is float else msgspec.json.Decoder(list[kind])
    if not 1 < rank <= _DEEPEST:
        return (flat,)
    nested: Any = kind
    for _ in range(rank):
        nested = list[nested]
    return flat, msgspec.json.Decoder(nested)


def decode_json(name: str, datatype: Datatype, shape: Shape, data: Any) -> Array:
    """The tensor that the JSON value ``data`` describes.

    ``null`` among the numbers of a float tensor means NaN, as Triton's clients write and read it.
    Raises RequestFailure (400) naming ``name`` for a wrong count, type or range.
    """
    return _shaped(name, datatype, shape, _untyped(name, datatype, data))


def _untyped(name: str, datatype: Datatype, data: Any) -> Array:
    if not datatype.has_json_form:
        raise _no_json_form(name, datatype)
    if not isinstance(data, list):
        raise invalid(f"input '{name}': data must be a list")
    # NumPy would take a bool among numbers for 0 or 1.
    if datatype not in _KINDS and any(type(leaf) is bool for leaf in _flat(data)):
        raise _wrong_type(name, datatype)
    return _typed(name, datatype, data)


def _typed(name: str, datatype: Datatype, data: list[Any]) -> Array:
    if datatype is Datatype.BYTES:
        return _strings(name, data)
    if datatype is Datatype.BOOL:
        found = _parsed(name, data)
        if found.size and found.dtype.kind != "b":
            raise _wrong_type(name, datatype)
        return found
    return _floats(name, datatype, data) if datatype.is_float else _integers(name, datatype, data)


def _shaped(name: str, datatype: Datatype, shape: Shape, found: Array) -> Array:
    count = math.prod(shape)
    if found.size != count:
        raise invalid(f"input '{name}': {found.size} elements, shape {list(shape)} needs {count}")
    return found.astype(datatype.numpy, copy=False).reshape(shape)


def _no_json_form(name: str, datatype: Datatype) -> Exception:
    return invalid(f"input '{name}': {datatype} has no JSON form, send it as binary data")


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
    found = np.empty(len(leaves), dtype=object)
    try:
        found[:] = [leaf.encode() for leaf in leaves]
    except UnicodeEncodeError as error:
        raise invalid(f"input '{name}': the data holds a lone surrogate") from error
    return found


def _floats(name: str, datatype: Datatype, data: list[Any]) -> Array:
    found = _parsed(name, data)
    if found.dtype == object:
        leaves = [float("nan") if leaf is None else leaf for leaf in _flat(data)]
        found = _parsed(name, leaves)
    if found.size and found.dtype.kind not in _NUMBERS:
        raise _wrong_type(name, datatype)
    with np.errstate(over="ignore"):
        return found.astype(datatype.numpy)


def _integers(name: str, datatype: Datatype, data: list[Any]) -> Array:
    found = _parsed(name, data)
    if found.size and found.dtype.kind not in _INTEGERS:
        # NumPy makes floats or objects of lists that mix small and very large integers.
        leaves = _flat(data)
        if not all(type(leaf) is int for leaf in leaves):
            raise _wrong_type(name, datatype)
        found = np.array(leaves, dtype=object)
    limits = np.iinfo(datatype.numpy)
    if found.size and (int(found.min()) < limits.min or int(found.max()) > limits.max):
        raise invalid(f"input '{name}': the data holds values out of the range of {datatype}")
    return found.astype(datatype.numpy)
