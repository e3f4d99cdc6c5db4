"""What a busy API server puts off."""

import pytest
from aiohttp import web

from e2e.sandbox.controllers.client import PODS, Access, ApiClient, ApiError


@pytest.fixture
async def busy():
    """A server that puts off the first two requests and refuses evictions; gives its address."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path)
        refused = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "try again"}
        if request.path.endswith("/eviction"):
            return web.json_response(refused, status=429)
        if len(seen) < 3:
            return web.json_response(refused, status=429, headers={"Retry-After": "0"})
        return web.json_response({"kind": "Pod", "seen": len(seen)})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_what_is_put_off_is_sent_again(busy):
    async with ApiClient(Access(busy), field_manager="tests") as client:
        assert (await client.get(PODS, "default", "a"))["seen"] == 3


async def test_a_refusal_that_names_no_time_is_final(busy):
    async with ApiClient(Access(busy), field_manager="tests") as client:
        with pytest.raises(ApiError, match="429"):
            await client.request("POST", PODS.path("default", "a", "eviction"), {})
