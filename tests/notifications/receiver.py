"""A receiver on this host that answers as the test says, and a clock and a sleep that cost no time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class LocalReceiver:
    answers: list[int | web.Response] = field(default_factory=list)
    """What is answered next; 204 when there is nothing more."""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    held: asyncio.Event | None = None
    """Where there is one, answers wait for it."""
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

    async def _post(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.headers.append(dict(request.headers))
        async with self.arrived:
            self.arrived.notify_all()
        if self.held is not None:
            await self.held.wait()
        answer = self.answers.pop(0) if self.answers else 204
        return web.Response(status=answer) if isinstance(answer, int) else answer

    async def have(self, count: int) -> None:
        async with asyncio.timeout(60), self.arrived:
            await self.arrived.wait_for(lambda: len(self.bodies) >= count)

    @asynccontextmanager
    async def open(self) -> AsyncIterator["LocalReceiver"]:
        application = web.Application()
        application.router.add_post("/hook", self._post)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        try:
            yield self
        finally:
            await runner.cleanup()


@dataclass
class Time:
    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
