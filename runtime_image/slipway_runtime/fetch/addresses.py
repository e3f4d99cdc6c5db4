"""Which addresses models may be fetched from, judged before anything is sent there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

Judge = Callable[[str, str], None]
"""Raises AddressRefused for a host and an address of it."""

_METADATA = frozenset(map(ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")))
"""Where clouds answer that do not do so at a link-local address."""
_TRANSLATED = ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for IPv4's where a network has no IPv4."""
_LOW = 32


class AddressRefused(Exception):  # noqa: N818 - the policy's answer, not a defect
    """The host has an address that the policy forbids."""


def judge(host: str, address: str, *, named: bool) -> None:
    """Raise AddressRefused for an address that is never reached, or, of a host that no user named, for a private one.

    An address inside another one (IPv4 in IPv6) is judged as well.
    """
    for found in _meanings(ip_address(address.partition("%")[0])):
        if found.is_link_local or found.is_multicast or found.is_unspecified or found in _METADATA:
            raise AddressRefused(f"{host} has a link-local or multicast address, or one of a cloud's metadata")
        if not found.is_global and not named:
            raise AddressRefused(f"{host}, to which another server pointed, has a private address")


def _meanings(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The address that is meant, and the one that would be reached."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    inner = [address.sixtofour, *(address.teredo or ())]
    if address in _TRANSLATED:
        inner.append(IPv4Address(int(address) & (1 << _LOW) - 1))
    yield from (one for one in inner if one is not None)


def pool_classes(judged: Judge) -> dict[str, type[HTTPConnectionPool]]:
    """urllib3's pools with connections to the very addresses that were judged: a name cannot change in between."""

    class CheckedConnection(HTTPConnection):
        def _new_conn(self) -> Any:
            return _connected(self, judged)

    class CheckedSecureConnection(HTTPSConnection):
        def _new_conn(self) -> Any:
            return _connected(self, judged)

    class CheckedPool(HTTPConnectionPool):
        ConnectionCls = CheckedConnection

    class CheckedSecurePool(HTTPSConnectionPool):
        ConnectionCls = CheckedSecureConnection

    return {"http": CheckedPool, "https": CheckedSecurePool}


def _connected(connection: HTTPConnection, judged: Judge) -> socket.socket:
    host = connection.host.strip("[]")
    try:
        found = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise NameResolutionError(host, connection, _as_gaierror(error)) from error
    refused: AddressRefused | None = None
    failed: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            judged(host, str(address[0]))
            return _opened(connection, socket.socket(family, kind, protocol), address)
        except AddressRefused as error:
            refused = error
        except OSError as error:
            failed = error
    if refused is not None:
        raise refused
    if isinstance(failed, TimeoutError):
        raise ConnectTimeoutError(connection, f"{host} did not answer in time") from failed
    raise NewConnectionError(connection, f"{host} cannot be reached: {failed}") from failed


def _opened(connection: HTTPConnection, opened: socket.socket, address: Any) -> socket.socket:
    try:
        for option in _options(connection):
            opened.setsockopt(*option)
        # What urllib3 calls a timeout is seconds, or a word for the system's own.
        if isinstance(connection.timeout, int | float):
            opened.settimeout(connection.timeout)
        opened.connect(address)
    except BaseException:
        opened.close()
        raise
    return opened


def _options(connection: HTTPConnection) -> Iterable[Any]:
    return connection.socket_options or ()


def _as_gaierror(error: Exception) -> socket.gaierror:
    return error if isinstance(error, socket.gaierror) else socket.gaierror(socket.EAI_NONAME, "no such name")
