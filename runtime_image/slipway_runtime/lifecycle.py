"""The life of a server process: listen, load, warm, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import uvloop

from slipway_runtime import journal
from slipway_runtime.http.connection import Bounds, Handler
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.http.listener import HttpListener
from slipway_runtime.http.observing import ObservedHandler
from slipway_runtime.http.routes import Router
from slipway_runtime.metrics.admission import tenant_counters
from slipway_runtime.metrics.gpu import GpuWatch
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.processes.group import Membership, membership
from slipway_runtime.processors import limit_threads
from slipway_runtime.refusal import ExitCode, Refusal, write_termination_message
from slipway_runtime.repository.control import ModelControl
from slipway_runtime.repository.loader import Heap
from slipway_runtime.repository.repository import Repository
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.listener import RpcListener, address_of
from slipway_runtime.rpc.service import RpcService
from slipway_runtime.serving.budget import ByteBudget
from slipway_runtime.serving.service import Phase
from slipway_runtime.serving.tenants import Tenants
from slipway_runtime.settings import ServeSettings
from slipway_runtime.shadow.config import ShadowFile
from slipway_runtime.shadow.repeater import Repeater
from slipway_runtime.telemetry.assembly import observer_of
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.telemetry.ticker import Ticker

_POLL_SECONDS = 0.02
# For what is still to be told when everything else has ended: a log that is not read, a collector that is away.
_FLUSH_SECONDS = 2.0


def run(settings: ServeSettings) -> ExitCode:
    """Serve until SIGTERM. Gives the exit code; a refusal is logged and left as termination message."""
    threads = limit_threads()
    try:
        code = uvloop.run(Server(settings, threads, membership()).run())
    except Refusal as refusal:
        write_termination_message(refusal)
        journal.record("refused", "error", reason=refusal.reason, text=refusal.text, code=int(refusal.code))
        code = refusal.code
    sys.stderr.flush()
    # The executor may still be inside the model, in native code that does not survive the
    # interpreter's end: leave without ending it.
    os._exit(code)


class Server:
    """One process and its models."""

    def __init__(self, settings: ServeSettings, threads: int, member: Membership | None = None) -> None:
        """``member``: which of several processes of the server this one is."""
        self._member = member
        self._settings = settings
        self._threads = threads
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._lost: BaseException | None = None

    async def run(self) -> ExitCode:
        """The whole life. Raises Refusal."""
        settings = self._settings
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        member = self._member
        sheet = Sheet() if member is None else member.sheet
        switches, observer = self._telemetry(sheet)
        repository = Repository(
            allow_empty=settings.repository.allow_no_models,
            sheet=sheet,
            complete=None if member is None else lambda: member.board.complete,
        )
        control = ModelControl(repository, settings, self._threads, self._device_lost, Heap())
        control.announce()
        repeater = self._repeater(repository)
        tenants = None
        if settings.tenants is not None:
            tenants = Tenants(settings.tenants, partial(tenant_counters, repository.accounts.sheet))
        memory = ByteBudget(settings.limits.max_inflight_bytes)
        endpoint = InferenceEndpoint(settings.limits.max_request_bytes, repeater, tenants, memory)
        service = RpcService(repository, RpcInference(repository, repeater, tenants, memory), control, switches)
        shared = member is not None
        rpc = RpcListener(
            service,
            settings.limits.max_request_bytes,
            observer=observer,
            shared=shared,
            max_inflight_bytes=memory.limit,
        )
        router: Handler = Router(repository, endpoint, control, switches)
        router = router if observer is None else ObservedHandler(router, observer)
        listener = HttpListener(router, self._bounds(memory), shared=shared)
        # A worker opens its ports when it can serve: connections go to those that can, and are not spread over all.
        if not shared:
            await self._listen(listener, rpc)
        gpus = GpuWatch(sheet)
        ticker = Ticker(self._ticks(repository, observer, gpus))
        try:
            if await self._load(control):
                if member is not None:
                    await self._listen(listener, rpc)
                    member.announce()
                await self._stopping.wait()
            if self._lost is not None:
                raise Refusal("DeviceFailed", str(self._lost).partition("\n")[0], ExitCode.INTERNAL)
            control.close()
            if any(place.loaded for place in repository.places()):
                await self._drain(repository, listener, rpc)
        finally:
            listener.close()
            await rpc.close()
            endpoint.close()
            if repeater is not None:
                await repeater.close()
            gpus.close()
            ticker.close()
            if observer is not None:
                await asyncio.to_thread(observer.close, _FLUSH_SECONDS)
        return ExitCode.OK

    def _telemetry(self, sheet: Sheet) -> tuple[Switches, Observer | None]:
        """What may be changed about it, and who tells. Raises Refusal."""
        settings = self._settings
        told = settings.telemetry
        board = None if self._member is None else self._member.board.cells
        locked = not told.allow_changes
        switches = Switches(board, traceable=bool(told.trace_endpoint), loggable=told.access_log, locked=locked)
        if self._member is None or not self._member.board.complete:
            switches.reset(told.trace_sample_ratio, access_log=told.access_log)
        journal.want(switches.logs)
        name = settings.models[0].name if len(settings.models) == 1 else "slipway-runtime"
        return switches, observer_of(told, switches, sheet, name, settings.tenants)

    def _bounds(self, memory: ByteBudget) -> Bounds:
        settings = self._settings
        return Bounds(
            settings.limits.max_request_bytes,
            max_connections=settings.max_connections,
            max_requests=settings.keepalive_requests,
            memory=memory,
        )

    def _ticks(self, repository: Repository, observer: Observer | None, gpus: GpuWatch) -> list[Callable[[], None]]:
        """What is brought up to date every second, for those who read the metrics from another process."""
        services = repository.services
        ticks: list[Callable[[], None]] = [
            lambda: repository.accounts.publish(services()),
            lambda: gpus.tick(any(one.model is not None and one.model.on_accelerator for one in services())),
        ]
        return ticks if observer is None else [*ticks, observer.publish]

    def _repeater(self, repository: Repository) -> Repeater | None:
        """Only a server of one model that stays repeats requests."""
        file, sole = self._settings.shadow_file, repository.sole
        return None if file is None or sole is None else Repeater(sole, ShadowFile(file))

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def _listen(self, listener: HttpListener, rpc: RpcListener) -> None:
        where = self._settings.listener
        wanted = where.http_port
        try:
            port = await listener.open(where.host, where.http_port)
            wanted = where.grpc_port
            grpc_port = await rpc.open(where.host, where.grpc_port)
        except OSError as error:
            text = f"cannot listen on {address_of(where.host, wanted)}: {error.strerror}"
            raise Refusal("CannotListen", text, ExitCode.INTERNAL) from error
        journal.record("listening", host=where.host, port=port, grpc_port=grpc_port)

    async def _load(self, control: ModelControl) -> bool:
        """Load and warm all models; False when told to stop meanwhile. Raises Refusal."""
        loading = asyncio.ensure_future(control.start())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loading
            return False
        loading.result()
        return True

    def _device_lost(self, error: BaseException) -> None:
        self._lost = error
        self._stopping.set()

    async def _drain(self, repository: Repository, listener: HttpListener, rpc: RpcListener) -> None:
        """Ready goes false at once; requests are served while the news spreads, then the rest finishes."""
        where = self._settings.listener
        begun = time.monotonic()
        repository.enter(Phase.DRAINING)
        listener.announce_close()
        journal.record("draining", unfinished=repository.unfinished, pre_stop=where.pre_stop, grace=where.grace)
        await self._wait(lambda: False, min(where.pre_stop, where.grace))
        repository.enter(Phase.CLOSING)
        listener.stop_accepting()
        left = begun + where.grace - time.monotonic()
        calls = asyncio.create_task(rpc.drain(left))
        await self._wait(lambda: not repository.unfinished and not listener.busy and calls.done(), left)
        lost = repository.unfinished
        repository.refuse_waiting()
        await asyncio.sleep(0)
        calls.cancel()
        journal.record("drained", seconds=round(time.monotonic() - begun, 3), refused=lost)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Until ``condition`` holds, ``seconds`` have passed, or a second signal came."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline and not self._hurry.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _POLL_SECONDS)
