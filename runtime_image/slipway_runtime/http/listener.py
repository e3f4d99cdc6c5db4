"""The listening socket and all connections behind it."""

from __future__ import annotations

import asyncio
import time

from slipway_runtime.http.connection import Bounds, Connection, Handler

_SWEEP_SECONDS = 1.0


class HttpListener:
    """Accepts connections until told to stop, and lets them end in order."""

    def __init__(self, handler: Handler, bounds: Bounds) -> None:
        self._handler = handler
        self._bounds = bounds
        self._closing = False
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; gives the port (of interest when ``port`` was 0). Raises OSError."""
        self._server = await self._loop.create_server(self._connection, host, port, backlog=1024)
        self._sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def announce_close(self) -> None:
        """From now on every answer says ``Connection: close``, so that clients move elsewhere."""
        self._closing = True
        for connection in self._connections:
            connection.closing = True

    def _connection(self) -> Connection:
        connection = Connection(self._handler, self._bounds, self._connections)
        connection.closing = self._closing
        return connection

    def stop_accepting(self) -> None:
        """Close the listening socket, and the connections on which nothing goes on."""
        if self._server is not None:
            self._server.close()
        for connection in [one for one in self._connections if one.idle]:
            connection.close()

    @property
    def busy(self) -> bool:
        """Whether any connection is receiving a request or waits for an answer."""
        return any(not connection.idle for connection in self._connections)

    def close(self) -> None:
        """End everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.stop_accepting()
        for connection in list(self._connections):
            connection.close()

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            connection.sweep(now)
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
