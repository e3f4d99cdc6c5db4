"""Memory for requests in flight: bodies, counted when their length is known, before they are read, and tensors."""

from __future__ import annotations

from collections.abc import Iterable

from slipway_runtime.protocol.failures import overloaded, too_large
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

_OBJECT = 48
"""Bytes of an element of BYTES besides its own: an object and a pointer to it."""


class ByteBudget:
    """Bytes that requests may hold at once, from their first byte to their answer. Pure."""

    __slots__ = ("_held", "limit")

    def __init__(self, limit: int) -> None:
        """``limit`` in bytes; 0 sets none."""
        self.limit = limit
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes reserved now."""
        return self._held

    def reserve(self, size: int, reserved: int = 0) -> None:
        """Reserve ``size`` bytes for a request that has ``reserved`` ones of them already.

        Raises RequestFailure: 413 if they never fit, 429 if they do not fit now.
        """
        more = size - reserved
        if 0 < self.limit < self._held + more:
            if size > self.limit:
                raise too_large(f"the server gives {self.limit} bytes to all requests at once")
            raise overloaded("the requests in flight fill the server's memory budget")
        self._held += more

    def release(self, size: int) -> None:
        """Give back what was reserved."""
        self._held -= size


class Reservation:
    """What one request holds of a budget."""

    __slots__ = ("_budget", "_held")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0

    def grow(self, size: int) -> None:
        """Reserve ``size`` bytes more. Raises as ``ByteBudget.reserve``."""
        self._budget.reserve(self._held + size, self._held)
        self._held += size

    def release(self) -> None:
        """Give all of it back."""
        self._budget.release(self._held)
        self._held = 0


def bytes_of(tensors: Iterable[Tensor]) -> tuple[int, int]:
    """Bytes of the numbers in ``tensors``, and those by which texts in them are larger than they were sent."""
    numbers = texts = 0
    for tensor in tensors:
        if tensor.datatype is Datatype.BYTES:
            texts += _OBJECT * tensor.array.size
        else:
            numbers += tensor.array.nbytes
    return numbers, texts
