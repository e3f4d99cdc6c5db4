"""Connections of a test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

__all__ = ["all_closed"]

PATIENCE = 120.0


@contextlib.asynccontextmanager
async def all_closed() -> AsyncIterator[None]:
    """Let what is connected within the block be closed when it ends: TLS takes some turns of the loop to say goodbye,
    which a loop that is closed at once would not give it.
    """
    selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
    before = len(selector.get_map())
    yield
    async with asyncio.timeout(PATIENCE):
        while True:
            if len(selector.get_map()) <= before:
                return
            await asyncio.sleep(0.01)
