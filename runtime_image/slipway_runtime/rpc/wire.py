"""The wire format of Protocol Buffers: reading fields, writing fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from slipway_runtime.protocol.failures import invalid

Bytes = bytes | bytearray | memoryview
Numbers = NDArray[np.uint64]
Field = tuple[int, int, "int | memoryview"]
"""Number, wire type and value: an integer, or the bytes of a fixed or length-delimited field."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10
_FIXED = {FIXED64: 8, FIXED32: 4}
MAX_FIELDS = 200_000
"""A message of two bytes a field would keep the server busy for a minute; no client sends so many."""
_BLOCK = 1024 * 1024
_MORE, _PAYLOAD, _PAYLOAD_BITS = 0x80, 0x7F, 7
_MASK = (1 << 64) - 1
_SIGN = 1 << 63


class Allowance:
    """How many more fields are read, of a message and of those in it."""

    __slots__ = ("left",)

    def __init__(self, left: int = MAX_FIELDS) -> None:
        self.left = left


def read_fields(data: memoryview, allowance: Allowance | None = None) -> Iterator[Field]:
    """The fields of a message in their order.

    Raises RequestFailure (400) where it is cut off or damaged, or has more fields than allowed (``MAX_FIELDS``).
    """
    position, end = 0, len(data)
    allowed = allowance or Allowance()
    while position < end:
        allowed.left -= 1
        if allowed.left < 0:
            raise invalid("the message has too many fields")
        tag, position = read_varint(data, position)
        kind, number = tag & 7, tag >> 3
        if number == 0:
            raise _damaged()
        if kind == VARINT:
            value, position = read_varint(data, position)
            yield number, kind, value
            continue
        if kind == DELIMITED:
            size, position = read_varint(data, position)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise _damaged()
        if size > end - position:
            raise _damaged()
        yield number, kind, data[position : position + size]
        position += size


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """A number (0 to 2^64 - 1) and the position behind it."""
    value = shift = 0
    for place in range(position, min(position + _MAX_VARINT, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, place + 1
        shift += 7
    raise _damaged()


def read_varints(kind: int, value: int | memoryview) -> Iterable[int]:
    """The numbers of a repeated field, packed or one at a time."""
    if isinstance(value, int):
        yield value
        return
    if kind != DELIMITED:
        raise _damaged()
    position = 0
    while position < len(value):
        number, position = read_varint(value, position)
        yield number


def count_varints(data: memoryview) -> int:
    """How many numbers a packed field holds."""
    octets = np.frombuffer(data, dtype=np.uint8)
    return sum(int(np.count_nonzero(octets[at : at + _BLOCK] < _MORE)) for at in range(0, len(octets), _BLOCK))


def packed_varints(data: memoryview) -> Iterator[Numbers]:
    """The numbers of a packed field as arrays of up to a million each. Raises RequestFailure (400)."""
    octets = np.frombuffer(data, dtype=np.uint8)
    position = 0
    while position < len(octets):
        block = octets[position : position + _BLOCK]
        ends = np.flatnonzero(block < _MORE)
        if not len(ends):
            raise _damaged()
        starts = np.concatenate(([0], ends[:-1] + 1))
        sizes = ends - starts + 1
        longest = int(sizes.max())
        if longest > _MAX_VARINT:
            raise _damaged()
        numbers = np.zeros(len(ends), dtype=np.uint64)
        for place in range(longest):
            having = sizes > place
            parts = block[starts[having] + place] & _PAYLOAD
            numbers[having] |= parts.astype(np.uint64) << np.uint64(place * _PAYLOAD_BITS)
        yield numbers
        position += int(ends[-1]) + 1


def signed(value: int) -> int:
    """A varint as a signed 64-bit number."""
    return value - (1 << 64) if value & _SIGN else value


def text(value: int | memoryview) -> str:
    """A string field. Raises RequestFailure (400) for anything but UTF-8."""
    try:
        return str(message(value), "utf-8")
    except UnicodeDecodeError as error:
        raise _damaged() from error


def message(value: int | memoryview) -> memoryview:
    """A length-delimited field. Raises RequestFailure (400) for a number."""
    if isinstance(value, int):
        raise _damaged()
    return value


def _damaged() -> Exception:
    return invalid("the message is not a valid protobuf of this service")


def varint(value: int) -> bytes:
    """A number; negative ones as two's complement of 64 bits."""
    value &= _MASK
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    """A field with a number."""
    return varint(number << 3 | VARINT) + varint(value)


def bytes_field(number: int, value: Bytes) -> bytes:
    """A field with bytes or an embedded message."""
    return b"".join((varint(number << 3 | DELIMITED), varint(len(value)), value))


def text_field(number: int, value: str) -> bytes:
    """A field with a string; nothing for an empty one."""
    return bytes_field(number, value.encode()) if value else b""


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """A repeated field of numbers; nothing for none."""
    data = b"".join(varint(value) for value in values)
    return bytes_field(number, data) if data else b""
