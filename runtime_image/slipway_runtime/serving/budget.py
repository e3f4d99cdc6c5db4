"""Memory for the bodies of requests in flight: counted when their length is known, before they are read."""

from __future__ import annotations

from slipway_runtime.protocol.failures import overloaded, too_large


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
