"""Long lists of numbers as JSON, read a piece at a time.

As Python objects the numbers of a text take up to thirty times its bytes. Read in pieces, and each piece turned into an
array at once, they take what the tensor takes, and one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from slipway_runtime.protocol.failures import RequestFailure, invalid
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape

LONG = 1024 * 1024
"""Bytes of text from which on this is worth it; shorter ones are read at once."""
_BRACKETS = b"[]"
_SPACE = b" \t\r\n"
_OPENING, _CLOSING, _COMMA = b"[],"
_MOST_LEVELS = 32
_LEADING = re.compile(rb"[\[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
INFINITE = b"1e98765432109876543210"
"""Stands for Infinity: a number that nobody else writes. Others beyond the range of floats are refused."""
_TOKENS = ((b"NaN", b"null"), (b"Infinity", INFINITE))
"""What Triton's clients write, and what is read as the same although it is JSON."""

Reader = Callable[[bytes], Array]


def read_numbers(name: str, datatype: Datatype, text: memoryview, most: int, read: Reader) -> Array:
    """The tensor, in the shape of its lists, that the valid JSON ``text`` holds; ``read`` reads a flat list.

    Raises RequestFailure (400) naming ``name`` for more than ``most`` elements and lists that are not of equal length.
    """
    # A number takes two bytes; what is never filled takes no memory.
    values: Array = np.empty(min(most, len(text) // 2), dtype=datatype.numpy)
    filled = 0
    nesting = _Nesting(name, text)
    for piece in _pieces(text):
        nesting.follow(piece)
        flat = piece.translate(None, _BRACKETS)
        if not flat.strip(_SPACE):
            continue
        found = read(b"[" + flat.rstrip(_SPACE).removesuffix(b",") + b"]")
        if filled + found.size > len(values):
            raise invalid(f"input '{name}': more elements than its shape has")
        values[filled : filled + found.size] = found
        filled += found.size
    return values[:filled].reshape(nesting.shape(filled))


def _pieces(text: memoryview) -> Iterator[bytes]:
    """The text in pieces that end with a comma, but for the last. There are no strings in it, or it is refused."""
    position, size = 0, LONG
    while position < len(text):
        piece = bytes(text[position : position + size])
        end = position + len(piece)
        cut = len(piece) if end == len(text) else piece.rfind(b",") + 1
        if not cut:
            size *= 2
            continue
        yield piece[:cut]
        position, size = position + cut, LONG


class _Nesting:
    """Whether lists in lists are of equal length, by how many commas come before their brackets."""

    def __init__(self, name: str, text: memoryview) -> None:
        self._name = name
        leading = _LEADING.match(text)
        assert leading is not None, "the pattern matches nothing, too"
        self._deepest = leading.group().count(b"[")
        if not 0 < self._deepest <= _MOST_LEVELS:
            raise invalid(f"input '{name}': data must be a list, of lists up to {_MOST_LEVELS} deep")
        self._depth = self._commas = 0
        self._lengths = [0] * (self._deepest + 1)
        """Elements in a list, by how deep it lies; 0 until the first one ends."""
        self._begun = [0] * (self._deepest + 1)
        self._ended = [0] * (self._deepest + 1)

    def follow(self, piece: bytes) -> None:
        """Look at the next piece. Raises RequestFailure (400)."""
        characters = np.frombuffer(piece, dtype=np.uint8)
        opening, closing = characters == _OPENING, characters == _CLOSING
        commas = characters == _COMMA
        if opening.any() or closing.any():
            brackets = opening | closing
            opens = opening[brackets]
            depths = self._depth + np.cumsum(np.where(opens, 1, -1))
            before = self._commas + np.cumsum(commas)[brackets]
            # A list lies as deep as it is after its opening, and before its closing bracket.
            levels = np.where(opens, depths, depths + 1)
            if int(levels.max()) > self._deepest:
                raise self._uneven()
            for level in range(1, self._deepest + 1):
                here = levels == level
                self._check(level, before[here & opens], before[here & ~opens])
            self._depth = int(depths[-1])
        self._commas += int(np.count_nonzero(commas))

    def shape(self, count: int) -> Shape:
        """The lengths of the lists, from the outermost in, once all was seen."""
        if not count:
            return (0,)
        lengths, inner = self._lengths[1:], [*self._lengths[2:], 1]
        ended = self._ended[1:]
        if any(lists * length != count for lists, length in zip(ended, lengths, strict=True)):
            raise self._uneven()
        return tuple(length // part for length, part in zip(lengths, inner, strict=True))

    def _check(self, level: int, begins: Array, ends: Array) -> None:
        if not self._lengths[level] and len(ends):
            self._lengths[level] = int(ends[0]) + 1
        length = self._lengths[level]
        first, last = self._begun[level], self._ended[level]
        self._begun[level] += len(begins)
        self._ended[level] += len(ends)
        even = np.array_equal(begins, length * np.arange(first, self._begun[level]))
        if not even or not np.array_equal(ends, length * np.arange(last + 1, self._ended[level] + 1) - 1):
            raise self._uneven()

    def _uneven(self) -> RequestFailure:
        return invalid(f"input '{self._name}': the lists in data are not of equal length")


def holds_more_strings(text: memoryview, most: int) -> bool:
    """Whether there are more than ``most`` strings in a JSON text."""
    return next(islice(_STRING.finditer(text), most, None), None) is not None


def without_tokens(text: bytes, most: int) -> bytes | None:
    """The JSON text with null for NaN, and with ``INFINITE`` for Infinity.

    None if there are neither or, besides, more than ``most`` strings.
    """
    if not any(token in text for token, _ in _TOKENS):
        return None
    parts: list[bytes] = []
    position = 0
    for number, string in enumerate(_STRING.finditer(text)):
        if number == most:
            return None
        parts += (_replaced(text[position : string.start()]), string.group())
        position = string.end()
    return b"".join((*parts, _replaced(text[position:])))


def _replaced(text: bytes) -> bytes:
    for token, value in _TOKENS:
        text = text.replace(token, value)
    return text
