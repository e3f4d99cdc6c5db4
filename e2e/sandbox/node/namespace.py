"""A network namespace of one's own, in which a whole pod range is local.

A real API server refuses endpoints in 127.0.0.0/8, so with one the pods live in 10.244.0.0/16. In a new network
namespace that range is put on the loopback device, and nothing outside notices. Root makes one by itself; others
need a kernel that lets them make user namespaces.

`python -m e2e.sandbox.node.namespace COMMAND ...` runs a command in such a namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from pathlib import Path

POD_RANGE = "10.244.0.0/16"
INSIDE = "SLIPWAY_SANDBOX_NETWORK_NAMESPACE"

_CLONE_NEWNET = 0x40000000
_CLONE_NEWUSER = 0x10000000
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1


def is_inside() -> bool:
    """Whether this process was started in a namespace made by `enter` or `run_again_inside`."""
    return os.environ.get(INSIDE) == str(Path("/proc/self/ns/net").stat().st_ino)


def enter(pod_range: str = POD_RANGE) -> None:
    """Move the calling thread, and every process it starts, into a new network namespace.

    Raises PermissionError without the right to do so.
    """
    try:
        _unshare(_CLONE_NEWNET)
    except PermissionError:
        _become_root_of_own()
    _raise_device("lo")
    _add_range("lo:pods", pod_range)
    os.environ[INSIDE] = str(Path("/proc/thread-self/ns/net").stat().st_ino)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"a network namespace cannot be made: {os.strerror(number)}")


def _become_root_of_own() -> None:
    """A user namespace in which we may make a network namespace, with the same user under the same number."""
    user, group = os.getuid(), os.getgid()
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    process = Path("/proc/self")
    (process / "setgroups").write_text("deny")
    (process / "uid_map").write_text(f"{user} {user} 1")
    (process / "gid_map").write_text(f"{group} {group} 1")


def run_again_inside() -> None:
    """Start this very program again inside a new namespace; returns at once when it is inside already."""
    if is_inside():
        return
    enter()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program again


def _raise_device(name: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", name.encode(), 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", name.encode(), flags | _IFF_UP))


def _add_range(name: str, pod_range: str) -> None:
    """An address with a prefix on the loopback device makes the whole prefix local, as 127.0.0.0/8 is."""
    network = ipaddress.IPv4Network(pod_range)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for number, value in ((_SIOCSIFADDR, network[1]), (_SIOCSIFNETMASK, network.netmask)):
            address = struct.pack("HH4s8x", socket.AF_INET, 0, value.packed)
            fcntl.ioctl(control, number, struct.pack("16s16s", name.encode(), address) + bytes(8))


def main() -> None:
    """Run the command given on the command line inside a new namespace."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m e2e.sandbox.node.namespace COMMAND ...")
    if not is_inside():
        enter()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the command is the user's own


if __name__ == "__main__":
    main()
