"""Where the operator's own endpoints listen."""

import socket

from aiohttp import web

__all__ = ["EVERYWHERE", "listen"]

EVERYWHERE = "*"
"""Every address of the pod: a cluster may know pods by IPv4, by IPv6 or by both."""


async def listen(runner: web.AppRunner, host: str, port: int) -> None:
    """Serve at an address, or at :data:`EVERYWHERE`; raises OSError where that is not possible."""
    if host != EVERYWHERE:
        await web.TCPSite(runner, host, port).start()
        return
    await web.SockSite(runner, _socket_of_both(port) or _socket_of_one(port)).start()


def _socket_of_both(port: int) -> socket.socket | None:
    """A socket for IPv6 and IPv4; None on a machine without IPv6."""
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            pass
    except (OSError, ValueError):
        return None
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)


def _socket_of_one(port: int) -> socket.socket:
    return socket.create_server(("0.0.0.0", port))  # noqa: S104  whoever may ask comes from outside the pod
