"""Ports for programs that must be told theirs before they start."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

__all__ = ["free_port"]

FIRST = 20000


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens and which nobody else is given while this process lives.

    It lies below those that the kernel gives to outgoing connections: one of these could be taken before the program
    has started. Raises RuntimeError when there is none.
    """
    folder = Path(tempfile.gettempdir()) / f"slipway-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    ports = list(range(FIRST, _first_ephemeral()))
    random.shuffle(ports)
    for port in ports:
        # Open, and so locked, until the process ends.
        claim = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind((host, port))
        except OSError:
            os.close(claim)
            continue
        return port
    raise RuntimeError(f"every port from {FIRST} on is in use")


def _first_ephemeral() -> int:
    """Where the kernel's range begins; 32768 where it cannot be read or begins too low to leave room."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 0
    return first if first > FIRST + 1000 else 32768
