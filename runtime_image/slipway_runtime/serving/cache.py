"""Answers of identical requests, for deterministic models: bounded in bytes and in age. Pure: the clock is given."""

from __future__ import annotations

import hashlib
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from slipway_runtime.tensors.tensor import Tensor

Outputs = tuple[Tensor, ...]
_ENTRY_BYTES = 1024
"""What an entry costs beside its data, rounded up: key, record, tensors, arrays."""
_ELEMENT_BYTES = 64
"""What an element of BYTES costs beside its data."""


class Remembered(tuple[Tensor, ...]):
    """Outputs that come from the cache."""

    __slots__ = ()


class Count(Protocol):
    """A counter, or a gauge."""

    def add(self, amount: float = 1.0) -> None:
        """Count up, or (a gauge) down."""


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What is counted. ``shared`` are requests that got the answer of an identical one under way."""

    hits: Count
    misses: Count
    shared: Count
    evictions: Count
    size: Count


@dataclass(frozen=True, slots=True)
class _Entry:
    outputs: Remembered
    size: int
    expires: float


def input_key(identity: str, inputs: Sequence[Tensor]) -> bytes:
    """The key of a request to the model ``identity`` (its name, version and digest).

    Inputs count by name, not by their order. Which outputs are wanted, and in which form, is not part of it: an entry
    holds all of them.
    """
    digest = hashlib.blake2b(digest_size=32)
    _add(digest.update, identity.encode())
    for tensor in sorted(inputs, key=lambda one: one.name):
        _add(digest.update, tensor.name.encode())
        _add(digest.update, str(tensor.datatype).encode())
        digest.update(struct.pack(f"<{len(tensor.shape) + 1}q", len(tensor.shape), *tensor.shape))
        if tensor.array.dtype.kind == "O":
            for element in tensor.array.reshape(-1).tolist():
                _add(digest.update, element)
        else:
            digest.update(np.ascontiguousarray(tensor.array).reshape(-1).view(np.uint8).data)
    return digest.digest()


def _add(update: Callable[[bytes], None], part: bytes) -> None:
    """Lengths keep ("ab", "c") apart from ("a", "bc")."""
    update(struct.pack("<q", len(part)))
    update(part)


class AnswerCache:
    """The least recently used answers go first; those older than ``ttl`` seconds are not given out."""

    def __init__(
        self, max_bytes: int, ttl: float, counts: CacheCounts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_bytes = max_bytes
        self.ttl = ttl
        self._clock = clock
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._size = 0
        self.counts = counts

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all that is kept, with what keeping it costs."""
        return self._size

    def get(self, key: bytes) -> Remembered | None:
        """The outputs under ``key``; counted as a hit or a miss."""
        entry = self._entries.get(key)
        if entry is not None and self._clock() >= entry.expires:
            self._drop(key)
            entry = None
        if entry is None:
            self.counts.misses.add()
            return None
        self._entries.move_to_end(key)
        self.counts.hits.add()
        return entry.outputs

    def put(self, key: bytes, outputs: Outputs) -> None:
        """Keep a copy of ``outputs``; what is larger than the whole cache is not kept."""
        size = _size(outputs)
        if size > self.max_bytes or self.ttl <= 0:
            return
        if key in self._entries:
            self._remove(key)
        while self.size + size > self.max_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(Remembered(_copies(outputs)), size, self._clock() + self.ttl)
        self._resize(size)

    def clear(self) -> None:
        """Forget everything, for instance because the model was replaced."""
        self._entries.clear()
        self._resize(-self._size)

    def _drop(self, key: bytes) -> None:
        self.counts.evictions.add()
        self._remove(key)

    def _remove(self, key: bytes) -> None:
        self._resize(-self._entries.pop(key).size)

    def _resize(self, size: int) -> None:
        self._size += size
        self.counts.size.add(size)


def _size(outputs: Outputs) -> int:
    total = _ENTRY_BYTES
    for one in outputs:
        if one.array.dtype.kind == "O":
            total += sum(len(element) + _ELEMENT_BYTES for element in one.array.reshape(-1).tolist())
        else:
            total += one.array.nbytes
    return total


def _copies(outputs: Outputs) -> Iterable[Tensor]:
    """Outputs of a batch are views of one large array, which must not stay alive because of a few rows."""
    for one in outputs:
        array = np.array(one.array, order="C")
        array.flags.writeable = False
        yield Tensor(one.name, one.datatype, array)
