"""The operator's endpoints answer at every address of its pod, whichever kind the cluster knows pods by."""

import socket

import aiohttp
import pytest
from aiohttp import web
from slipway.engine.engine import Settings
from slipway.engine.listening import EVERYWHERE, listen


@pytest.fixture
async def runner():
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="here")

    application = web.Application()
    application.router.add_get("/", answer)
    made = web.AppRunner(application)
    await made.setup()
    yield made
    await made.cleanup()


def hosts() -> list[str]:
    """Addresses of this machine by the kinds that it has."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return ["127.0.0.1", "[::1]"]
    except OSError:
        return ["127.0.0.1"]


async def test_everywhere_is_every_address(runner):
    assert Settings().http_host == EVERYWHERE
    await listen(runner, EVERYWHERE, 0)
    port = runner.addresses[0][1]
    async with aiohttp.ClientSession() as session:
        for host in hosts():
            async with session.get(f"http://{host}:{port}/") as response:
                assert await response.text() == "here"


async def test_a_machine_without_ipv6_is_served_by_the_other(runner, monkeypatch):
    real = socket.create_server

    def without_ipv6(address, *, family=socket.AF_INET, **options):
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(address, family=family, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    await listen(runner, EVERYWHERE, 0)
    assert runner.addresses[0][0] == "0.0.0.0"


async def test_one_address_is_that_one_alone(runner):
    await listen(runner, "127.0.0.1", 0)
    assert runner.addresses[0][0] == "127.0.0.1"
