"""Tensor data as raw bytes: little-endian, row-major, no padding; BYTES elements carry a length."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape

_LENGTH_BYTES = 4


def decode_raw(name: str, datatype: Datatype, shape: Shape, data: memoryview) -> Array:
    """The tensor whose bytes ``data`` holds, as a view of them where NumPy can (everything but BYTES).

    Raises RequestFailure (400) naming ``name`` when size, length prefixes or BOOL values are wrong.
    """
    if datatype is Datatype.BYTES:
        return _decode_bytes(name, shape, data)
    expected = math.prod(shape) * datatype.numpy.itemsize
    if len(data) != expected:
        raise invalid(
            f"input '{name}': {len(data)} bytes of binary data, "
            f"datatype {datatype} and shape {list(shape)} need {expected}"
        )
    if datatype is Datatype.BOOL and any_above_one(data):
        raise invalid(f"input '{name}': BOOL data may hold the bytes 0 and 1 only")
    if expected == 0:
        return np.empty(shape, dtype=datatype.numpy)
    return np.frombuffer(data, dtype=datatype.numpy).reshape(shape)


def any_above_one(data: memoryview) -> bool:
    """Whether a byte is neither 0 nor 1 (as a bool view such bytes are undefined behaviour in torch)."""
    return len(data) > 0 and int(np.frombuffer(data, dtype=np.uint8).max()) > 1


def _decode_bytes(name: str, shape: Shape, data: memoryview) -> Array:
    count = math.prod(shape)
    # Checked before anything is allocated: a shape is cheap to send, a million objects are not cheap to make.
    if count * _LENGTH_BYTES > len(data):
        raise invalid(f"input '{name}': the binary data is too short for {count} BYTES elements")
    elements = list(_split_elements(name, data))
    if len(elements) != count:
        raise invalid(f"input '{name}': {len(elements)} BYTES elements, shape {list(shape)} needs {count}")
    array = np.empty(count, dtype=object)
    array[:] = elements
    return array.reshape(shape)


def _split_elements(name: str, data: memoryview) -> Iterator[bytes]:
    position, end = 0, len(data)
    while position < end:
        if end - position < _LENGTH_BYTES:
            raise invalid(f"input '{name}': a BYTES length prefix is cut off")
        length = int.from_bytes(data[position : position + _LENGTH_BYTES], "little")
        position += _LENGTH_BYTES
        if length > end - position:
            raise invalid(f"input '{name}': a BYTES element is longer than the data that follows")
        yield bytes(data[position : position + length])
        position += length


def encode_raw(datatype: Datatype, array: Array) -> memoryview:
    """The bytes of a tensor; a view of the array's own memory where it is contiguous."""
    if datatype is Datatype.BYTES:
        parts = bytearray()
        for element in array.reshape(-1).tolist():
            parts += len(element).to_bytes(_LENGTH_BYTES, "little")
            parts += element
        return memoryview(parts)
    flat = np.ascontiguousarray(array, dtype=datatype.numpy).reshape(-1)
    return flat.view(np.uint8).data if flat.size else memoryview(b"")
