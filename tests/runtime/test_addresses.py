"""The server answers at every address of its pod, of IPv4 and of IPv6, unless it is told one."""

import asyncio
import socket

import pytest
from slipway_runtime.http.connection import Bounds, _text_of
from slipway_runtime.http.listener import HttpListener
from slipway_runtime.settings import Listener, every_address


class Silent:
    """Asked by nobody here: a connection that is taken is enough."""

    def begin(self, exchange: object) -> None:
        raise AssertionError(exchange)


def addresses() -> list[str]:
    return ["127.0.0.1", "::1"] if every_address() == "::" else ["127.0.0.1"]


def test_the_default_is_every_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_HOST", raising=False)
    assert Listener().host == every_address()
    monkeypatch.setenv("SLIPWAY_HOST", "127.0.0.1")
    assert Listener().host == "127.0.0.1"


def test_a_machine_without_ipv6_has_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", refused)
    assert every_address() == "0.0.0.0"


async def test_both_kinds_of_clients_are_taken() -> None:
    listener = HttpListener(Silent(), Bounds(1000))  # type: ignore[arg-type]
    port = await listener.open(every_address(), 0)
    try:
        for address in addresses():
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
    finally:
        listener.close()


def test_a_client_of_ipv4_bears_its_own_address() -> None:
    assert _text_of(("::ffff:10.1.2.3", 50000, 0, 0)) == "10.1.2.3:50000"
    assert _text_of(("fd00::1", 50000, 0, 0)) == "[fd00::1]:50000"
    assert _text_of(("10.1.2.3", 50000)) == "10.1.2.3:50000"
