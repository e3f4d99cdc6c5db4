"""A way to a server that can be closed and opened again, as a network that fails."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["Valve"]

HOST = "127.0.0.1"
CHUNK = 1 << 16


@dataclass
class Valve:
    """Passes TCP connections on to the server of `target` while it is open; refuses and cuts them while it is shut."""

    target: str
    """URL of the server."""
    port: int = 0
    _server: asyncio.Server | None = None
    _passing: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where clients find it; the same after it was shut and opened."""
        return f"http://{HOST}:{self.port}"

    async def open(self) -> None:
        """Let connections through; raises OSError when somebody took the port meanwhile."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def shut(self) -> None:
        """Cut all connections and take no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._pass(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = urlsplit(self.target)
        with contextlib.ExitStack() as closing:
            closing.callback(writer.close)
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(address.hostname, address.port)
                closing.callback(far_writer.close)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, far_writer))
                    group.create_task(_copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
