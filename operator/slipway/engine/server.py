"""The operator's own HTTP endpoints: /healthz, /readyz and /metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from slipway.engine.listening import listen
from slipway.engine.queue import WorkQueue
from slipway.engine.resync import Resync
from slipway.engine.telemetry import Telemetry
from slipway.kube.metadata import Key

__all__ = ["Health", "HealthLimits", "serve"]


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """Bounds in seconds beyond which the process counts as stuck and is better restarted."""

    loop_lag: float = 5.0
    queue_age: float = 300.0
    reconcile: float = 300.0
    resync_periods: float = 3.0
    """In periods of the resync."""
    first_resync: float = 300.0
    """Time for the first complete list."""


class Health:
    """Judges whether the process still does its work, whether or not it leads."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        resync: Resync,
        telemetry: Telemetry,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        limits: HealthLimits | None = None,
    ) -> None:
        """``clock`` is monotonic, in seconds."""
        self._queue = queue
        self._resync = resync
        self._telemetry = telemetry
        self._clock = clock
        self._sleep = sleep
        self._limits = limits or HealthLimits()
        self._started = clock()
        self._beat = clock()
        self._lag = 0.0
        self.leading = False
        """Whether queued keys are to be worked on here."""

    async def run(self) -> None:
        """Measure how late the event loop is, for ever."""
        while True:
            before = self._clock()
            await self._sleep(1.0)
            self._beat = self._clock()
            self._lag = max(0.0, self._beat - before - 1.0)
            self._telemetry.loop_lag.set(self._lag)
            self._telemetry.queue_depth.set(len(self._queue))
            self._telemetry.resync_age.set(self._resync.age or 0.0)
            self._telemetry.leading.set(1.0 if self.leading else 0.0)

    def problems(self) -> list[str]:
        """What is wrong, in words; nothing when all is well."""
        limits, age = self._limits, self._resync.age
        problems = []
        if self._lag > limits.loop_lag:
            problems.append(f"the event loop is {self._lag:.1f} s late")
        if self.leading and self._queue.oldest > limits.queue_age:
            problems.append(f"a key has been ready for {self._queue.oldest:.0f} s")
        if self._queue.longest_run > limits.reconcile:
            problems.append(f"a reconcile has been running for {self._queue.longest_run:.0f} s")
        if age is not None and age > limits.resync_periods * self._resync.period:
            problems.append(f"the last complete list is {age:.0f} s old")
        if age is None and self._clock() - self._started > limits.first_resync:
            problems.append("nothing could be listed since the start")
        return problems

    @property
    def ready(self) -> bool:
        """Whether everything has been listed once; leading is no part of it, or a rolling update would never end."""
        return self._resync.primed.is_set()


async def serve(health: Health, telemetry: Telemetry, host: str, port: int) -> web.AppRunner:
    """Start the endpoints; clean up the runner returned to stop them."""

    async def healthz(_: web.Request) -> web.Response:
        problems = health.problems()
        return web.Response(text="\n".join(problems) or "ok", status=500 if problems else 200)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok" if health.ready else "not listed yet", status=200 if health.ready else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=telemetry.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await listen(runner, host, port)
    return runner
