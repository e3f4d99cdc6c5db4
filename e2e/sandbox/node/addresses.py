"""Addresses of pods and nodes within one loopback range, and the machine-wide claim on such a range."""

from __future__ import annotations

import fcntl
import ipaddress
import tempfile
from collections import deque
from pathlib import Path
from typing import IO

FIRST_OCTET = 20
LAST_OCTET = 250


class AddressPool:
    """Hands out pod addresses; one given back is the last to be used again, so that late traffic meets nobody."""

    def __init__(self, pod_range: str) -> None:
        network = ipaddress.ip_network(pod_range)
        if not isinstance(network, ipaddress.IPv4Network) or network.num_addresses < 1024:
            raise ValueError(f"not an IPv4 range of 1024 addresses or more: {pod_range}")
        self._network = network
        self._free = deque(range(257, network.num_addresses - 1))

    def node_address(self, number: int) -> str:
        """The address of node `number`, from the first 256 of the range."""
        return str(self._network[1 + number])

    def take(self) -> str:
        """An unused pod address; raises RuntimeError when none is left."""
        while self._free:
            address = self._network[self._free.popleft()]
            if address.packed[-1] not in (0, 255):
                return str(address)
        raise RuntimeError(f"no pod address is left in {self._network}")

    def give_back(self, address: str) -> None:
        """Return a pod address."""
        self._free.append(int(ipaddress.IPv4Address(address)) - int(self._network.network_address))


class LoopbackRange:
    """A 127.N.0.0/16 that no other sandbox on this machine uses, held until `release`."""

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir()) / "slipway-sandbox-ranges"
        folder.mkdir(exist_ok=True)
        self._file: IO[str] | None = None
        for octet in range(FIRST_OCTET, LAST_OCTET):
            handle = (folder / f"127.{octet}").open("w")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                handle.close()
                continue
            self._file = handle
            self.cidr = f"127.{octet}.0.0/16"
            return
        raise RuntimeError("every loopback range for sandboxes is in use")

    def release(self) -> None:
        """Let another sandbox have the range."""
        if self._file is not None:
            self._file.close()
            self._file = None
