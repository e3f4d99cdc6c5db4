"""The listening socket and all connections behind it."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
import time

from slipway_runtime.http.connection import Bounds, Connection, Handler
from slipway_runtime.http.refusing import Refusing

_SWEEP_SECONDS = 1.0
_OTHER_FILES = 128
_BACKLOG = 1024


class HttpListener:
    """Accepts connections until told to stop, and lets them end in order."""

    def __init__(self, handler: Handler, bounds: Bounds, *, shared: bool = False) -> None:
        """``shared``: other processes listen on the same port."""
        self._shared = shared
        self._most = bounds.max_connections or _connections_allowed()
        self._period = min(_SWEEP_SECONDS, bounds.head_time / 2, bounds.body_stall / 2, bounds.body_time / 2)
        self._handler = handler
        self._bounds = bounds
        self._closing = False
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None

    async def open(self, host: str, port: int) -> int:
        """Listen; gives the port (of interest when ``port`` was 0). Raises OSError."""
        if host == "::":
            # By itself asyncio would leave IPv4 out.
            both = socket.create_server(
                (host, port), family=socket.AF_INET6, reuse_port=self._shared, dualstack_ipv6=True
            )
            self._server = await self._loop.create_server(self._connection, sock=both, backlog=_BACKLOG)
        else:
            self._server = await self._loop.create_server(
                self._connection, host, port, backlog=_BACKLOG, reuse_port=self._shared or None
            )
        self._sweep()
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def announce_close(self) -> None:
        """From now on every answer says ``Connection: close``, so that clients move elsewhere."""
        self._closing = True
        for connection in self._connections:
            connection.closing = True

    def _connection(self) -> asyncio.Protocol:
        if len(self._connections) >= self._most and not self._part_with_idlest():
            return Refusing()
        connection = Connection(self._handler, self._bounds, self._connections)
        connection.closing = self._closing
        return connection

    def _part_with_idlest(self) -> bool:
        """Make room for a client that has something to ask; false where all others have, too."""
        idle = [connection for connection in self._connections if connection.idle]
        if not idle:
            return False
        idlest = min(idle, key=lambda connection: connection.idle_since)
        # It counts no more, though it is still on its way out.
        self._connections.discard(idlest)
        idlest.close()
        return True

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
        self._sweeper = self._loop.call_later(self._period, self._sweep)


def _connections_allowed() -> int:
    """As many as there are file descriptors, less some for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _OTHER_FILES) if soft != resource.RLIM_INFINITY else sys.maxsize
