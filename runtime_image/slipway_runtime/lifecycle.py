"""The life of a server process: listen, load, warm, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import uvloop

from slipway_runtime import journal
from slipway_runtime.http.connection import Bounds
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.http.listener import HttpListener
from slipway_runtime.http.routes import Router
from slipway_runtime.models.model import Model
from slipway_runtime.processors import limit_threads
from slipway_runtime.refusal import ExitCode, Refusal, write_termination_message
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.listener import RpcListener
from slipway_runtime.rpc.service import RpcService
from slipway_runtime.serving.batcher import Batcher
from slipway_runtime.serving.cost import CostModel
from slipway_runtime.serving.executor import Executor
from slipway_runtime.serving.service import ModelService, Phase
from slipway_runtime.serving.warmup import Timing, read_goldens, warm_up
from slipway_runtime.settings import ServeSettings
from slipway_runtime.shadow.config import ShadowFile
from slipway_runtime.shadow.repeater import Repeater

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class WarmModel:
    """A model ready to serve."""

    model: Model
    max_batch_size: int
    timings: list[Timing]
    digest: str


def run(settings: ServeSettings) -> ExitCode:
    """Serve until SIGTERM. Gives the exit code; a refusal is logged and left as termination message."""
    threads = limit_threads()
    try:
        code = uvloop.run(Server(settings, threads).run())
    except Refusal as refusal:
        write_termination_message(refusal)
        journal.record("refused", "error", reason=refusal.reason, text=refusal.text, code=int(refusal.code))
        code = refusal.code
    sys.stderr.flush()
    # The executor may still be inside the model, in native code that does not survive the
    # interpreter's end: leave without ending it.
    os._exit(code)


class Server:
    """One process, one model."""

    def __init__(self, settings: ServeSettings, threads: int) -> None:
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
        executor = Executor(loop, prepare=self._prepare_thread)
        model = settings.model
        service = ModelService(model.name, model.version, model.revision, executor)
        repeater = None if settings.shadow_file is None else Repeater(service, ShadowFile(settings.shadow_file))
        endpoint = InferenceEndpoint(service, settings.limits.max_request_bytes, repeater)
        rpc = RpcListener(RpcService(service, RpcInference(service, repeater)), settings.limits.max_request_bytes)
        listener = HttpListener(Router(service, endpoint), Bounds(settings.limits.max_request_bytes))
        await self._listen(listener, rpc)
        try:
            if await self._load(service):
                await self._stopping.wait()
            if self._lost is not None:
                raise Refusal("DeviceFailed", str(self._lost).partition("\n")[0], ExitCode.INTERNAL)
            await self._drain(service, listener, rpc)
        finally:
            listener.close()
            await rpc.close()
            endpoint.close()
            if repeater is not None:
                await repeater.close()
            executor.stop()
        return ExitCode.OK

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def _prepare_thread(self) -> None:
        """Thread counts of torch belong to the thread that computes."""
        import torch

        torch.set_num_threads(self._threads)

    async def _listen(self, listener: HttpListener, rpc: RpcListener) -> None:
        where = self._settings.listener
        wanted = where.http_port
        try:
            port = await listener.open(where.host, where.http_port)
            wanted = where.grpc_port
            grpc_port = await rpc.open(where.host, where.grpc_port)
        except OSError as error:
            text = f"cannot listen on {where.host}:{wanted}: {error.strerror}"
            raise Refusal("CannotListen", text, ExitCode.INTERNAL) from error
        journal.record("listening", host=where.host, port=port, grpc_port=grpc_port)

    async def _load(self, service: ModelService) -> bool:
        """Load and warm on the executor thread; False when told to stop meanwhile. Raises Refusal."""
        begun = time.monotonic()
        loading = asyncio.ensure_future(service.executor.call(lambda: load_warm(self._settings)))
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            return False
        warm: WarmModel = _result_of(loading)
        self._start(service, warm)
        seconds = time.monotonic() - begun
        service.metrics.load_seconds.set(seconds)
        self._log_ready(warm, seconds)
        return True

    def _start(self, service: ModelService, warm: WarmModel) -> None:
        limits = self._settings.limits
        cost = CostModel(inline_allowed=not warm.model.on_accelerator)
        for rows in {timing.rows for timing in warm.timings}:
            seconds = [timing.seconds for timing in warm.timings if timing.rows == rows]
            # The later executions of a size are the warm ones.
            for one in seconds[len(seconds) // 2 :]:
                cost.observe(rows, one)
        batcher = Batcher(
            warm.model,
            service.executor,
            limits,
            service.metrics,
            service.statistics,
            device_lost=lambda error: self._device_lost(service, error),
            max_rows=warm.max_batch_size,
            cost=cost,
        )
        service.start(warm.model, batcher, warm.max_batch_size, limits.max_delay, sha256=warm.digest)

    def _log_ready(self, warm: WarmModel, seconds: float) -> None:
        signature = warm.model.signature
        model = self._settings.model
        journal.record(
            "ready",
            model=model.name,
            version=model.version,
            revision=model.revision,
            platform=warm.model.platform,
            sha256=warm.digest,
            inputs=[f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in signature.inputs],
            outputs=[f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in signature.outputs],
            batched=signature.batched,
            declared=not signature.open,
            max_batch_size=warm.max_batch_size,
            seconds=round(seconds, 3),
            threads=self._threads,
        )

    def _device_lost(self, service: ModelService, error: BaseException) -> None:
        self._lost = error
        service.enter(Phase.FAILED)
        self._stopping.set()

    async def _drain(self, service: ModelService, listener: HttpListener, rpc: RpcListener) -> None:
        """Ready goes false at once; requests are served while the news spreads, then the rest finishes."""
        where = self._settings.listener
        begun = time.monotonic()
        service.enter(Phase.DRAINING)
        listener.announce_close()
        journal.record("draining", unfinished=service.unfinished, pre_stop=where.pre_stop, grace=where.grace)
        await self._wait(lambda: False, min(where.pre_stop, where.grace))
        service.enter(Phase.CLOSING)
        listener.stop_accepting()
        left = begun + where.grace - time.monotonic()
        calls = asyncio.create_task(rpc.drain(left))
        await self._wait(lambda: not service.unfinished and not listener.busy and calls.done(), left)
        lost = service.unfinished
        service.refuse_waiting()
        await asyncio.sleep(0)
        calls.cancel()
        journal.record("drained", seconds=round(time.monotonic() - begun, 3), refused=lost)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Until ``condition`` holds, ``seconds`` have passed, or a second signal came."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline and not self._hurry.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), _POLL_SECONDS)


def _result_of(loading: asyncio.Future[WarmModel]) -> WarmModel:
    error = loading.exception()
    if error is None:
        return loading.result()
    if isinstance(error, Refusal):
        raise error
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    raise Refusal("LoadFailed", text, ExitCode.INTERNAL) from error


def load_warm(settings: ServeSettings) -> WarmModel:
    """Verify, load and warm the model: everything between a URI and readiness. Raises Refusal."""
    from slipway_runtime.artefact.arrival import arrived
    from slipway_runtime.models.fidelity import compare_with_fp32
    from slipway_runtime.models.loading import load

    goldens = [] if settings.warmup.file is None else read_goldens(settings.warmup.file)
    limit = settings.limits.max_batch_size
    with arrived(settings.model) as artefact:
        kind, digest = artefact.kind.value, artefact.digest
        journal.record("loading", kind=kind, sha256=digest, verified=artefact.verified, signed=artefact.signed)
        loaded = load(artefact, settings.model)
        program = loaded.program
        max_rows = limit if loaded.max_rows is None else min(limit, loaded.max_rows)
        sizes = sorted({1, max_rows}) if program.signature.batched else [1]
        timings = warm_up(program, settings.warmup.requests, sizes, loaded.free, goldens)
        compare_with_fp32(artefact, settings.model, loaded, [one.request.inputs for one in goldens], sizes[-1])
        return WarmModel(program, max_rows, timings, artefact.digest)
