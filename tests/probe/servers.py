"""Model servers for the prober's tests: an honest one with settable answers, and raw sockets that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

METADATA = {
    "name": "m",
    "versions": ["v1"],
    "platform": "test",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    "parameters": {"sha256": "a" * 64},
}


@dataclass
class HonestServer:
    """Speaks the Open Inference Protocol; answers each inference with ``outputs``."""

    metadata: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(METADATA)))
    outputs: list[dict[str, Any]] = field(
        default_factory=lambda: [{"name": "y", "datatype": "FP32", "shape": [1], "data": [3.0]}]
    )
    ready: bool = True
    infer_status: int = 200
    infers: int = 0
    shadow_marks: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    port: int = 0

    async def _live(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def _metadata(self, request: web.Request) -> web.Response:
        self._note(request)
        return web.json_response(self.metadata)

    async def _infer(self, request: web.Request) -> web.Response:
        await request.read()
        self.infers += 1
        self._note(request)
        if self.infer_status != 200:
            return web.json_response({"error": "no luck"}, status=self.infer_status)
        return web.json_response({"model_name": "m", "outputs": self.outputs})

    def _note(self, request: web.Request) -> None:
        self.shadow_marks.add(request.headers.get("x-slipway-shadow", ""))
        self.hosts.add(request.headers["Host"])

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HonestServer"]:
        app = web.Application()
        app.router.add_get("/v2/health/ready", self._live)
        app.router.add_get("/v2/models/m", self._metadata)
        app.router.add_post("/v2/models/m/infer", self._infer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(talk: Talk) -> AsyncIterator[int]:
    """A socket server that does whatever ``talk`` does; gives its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
