"""From a source to a model that serves: fetched, verified, loaded and warm, in as many copies as asked for."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from slipway_runtime import journal
from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.models.model import Model
from slipway_runtime.processors import return_free_memory
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.repository.source import Source
from slipway_runtime.serving.batcher import Batcher
from slipway_runtime.serving.caching import caching
from slipway_runtime.serving.cost import CostModel
from slipway_runtime.serving.executor import Executor, Instance
from slipway_runtime.serving.service import ModelService
from slipway_runtime.serving.warmup import Timing, read_goldens, warm_up
from slipway_runtime.settings import ModelSettings


@dataclass(frozen=True)
class WarmModel:
    """Copies of a model, of which the first is warm; ``free`` is the size that works for free dimensions."""

    copies: tuple[Model, ...]
    max_batch_size: int
    timings: list[Timing]
    digest: str
    free: int | None


class Loader:
    """Loads models, each on threads of its own."""

    def __init__(
        self, threads: int, device_lost: Callable[[ModelService, BaseException], None], heap: Heap | None = None
    ) -> None:
        """``threads`` are what numeric libraries may use for one model; ``device_lost`` is told when a model's device
        has failed for good; ``heap`` is given where the process is the server's alone.
        """
        self._heap = heap
        self._threads = threads
        self._device_lost = device_lost
        self._loop = asyncio.get_running_loop()
        self._loading = 0
        self._usual_turn = 0.0

    async def load(self, service: ModelService, source: Source) -> None:
        """Load the source and start ``service`` with it. Raises Refusal; then nothing is left of it."""
        with self._short_turns():
            await self._load(service, source)

    @contextlib.contextmanager
    def _short_turns(self) -> Iterator[None]:
        """While models load, their threads let the event loop come in after a tenth of the usual time."""
        if self._loading == 0:
            self._usual_turn = sys.getswitchinterval()
            sys.setswitchinterval(self._usual_turn / 10)
        self._loading += 1
        try:
            yield
        finally:
            self._loading -= 1
            if self._loading == 0:
                sys.setswitchinterval(self._usual_turn)

    async def _load(self, service: ModelService, source: Source) -> None:
        begun = time.monotonic()
        executors = [self._executor()]
        try:
            warm: WarmModel = await executors[0].call(partial(load_warm, source, self._threads, self._heap))
            executors += [self._executor() for _ in warm.copies[1:]]
            others = zip(executors[1:], warm.copies[1:], strict=True)
            await asyncio.gather(
                *(executor.call(partial(warm_copy, source, warm, copy, self._threads)) for executor, copy in others)
            )
        except BaseException as error:
            refusal = _refusal(error)
            for executor in executors:
                executor.submit(_clean, lambda result, error: None)
                executor.stop()
            if refusal is None:
                raise
            raise refusal from None
        instances = [Instance(model, executor) for model, executor in zip(warm.copies, executors, strict=True)]
        self._start(service, source, warm, instances)
        seconds = time.monotonic() - begun
        service.metrics.load_seconds.set(seconds)
        self._log_ready(service, warm, seconds)

    def _executor(self) -> Executor:
        return Executor(self._loop, prepare=partial(_use_threads, self._threads))

    def _start(self, service: ModelService, source: Source, warm: WarmModel, instances: list[Instance]) -> None:
        cost = CostModel(inline_allowed=not instances[0].model.on_accelerator)
        for rows in {timing.rows for timing in warm.timings}:
            seconds = [timing.seconds for timing in warm.timings if timing.rows == rows]
            # The later executions of a size are the warm ones.
            for one in seconds[len(seconds) // 2 :]:
                cost.observe(rows, one)
        batcher = Batcher(
            instances,
            source.limits,
            service.metrics,
            service.statistics,
            device_lost=partial(self._device_lost, service),
            max_rows=warm.max_batch_size,
            cost=cost,
        )
        service.patience = 2 * source.limits.timeout
        identity = f"{service.name}/{service.version}/{warm.digest}"
        served = caching(batcher, source.limits, identity, service.metrics, service.statistics)
        service.start(instances, served, warm.max_batch_size, source.limits.max_delay, sha256=warm.digest)

    def _log_ready(self, service: ModelService, warm: WarmModel, seconds: float) -> None:
        model = warm.copies[0]
        signature = model.signature
        journal.record(
            "ready",
            model=service.name,
            version=service.version,
            revision=service.revision,
            platform=model.platform,
            sha256=warm.digest,
            inputs=[f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in signature.inputs],
            outputs=[f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in signature.outputs],
            batched=signature.batched,
            declared=not signature.open,
            max_batch_size=warm.max_batch_size,
            instances=len(warm.copies),
            seconds=round(seconds, 3),
            threads=max(1, self._threads // len(warm.copies)),
        )


def _refusal(error: BaseException) -> Refusal | None:
    """Why the model was not loaded, without anything of the model in it; None for what is no failure of a load."""
    if not isinstance(error, Exception):
        return None
    chain: BaseException | None = error
    while chain is not None:
        # The frames hold what was loaded so far.
        traceback.clear_frames(chain.__traceback__)
        chain = chain.__cause__ or chain.__context__
    if isinstance(error, Refusal):
        return Refusal(error.reason, error.text, error.code)
    text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return Refusal("LoadFailed", text, ExitCode.INTERNAL)


def _clean() -> None:
    gc.collect()
    return_free_memory()


def _use_threads(count: int) -> None:
    """Thread counts of torch belong to the thread that computes."""
    import torch

    torch.set_num_threads(max(1, count))


class Heap:
    """What the garbage collector has to look through.

    Modules are for life, and torch's are so many objects that looking through them takes a fifth of a second, in which
    nothing is served. So they are taken out of it before the first model comes, which must not be for life.
    """

    def __init__(self) -> None:
        self._settled = False

    def settle(self, kind: ModelKind) -> None:
        """Import what models of that kind need, and leave all that is there now to itself; only the first time."""
        if self._settled:
            return
        self._settled = True
        for name in _NEEDED.get(kind, ()):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()


_NEEDED = {ModelKind.TORCH_EXPORT: ("torch.export",), ModelKind.ONNX: ("onnxruntime",)}


def load_warm(source: Source, threads: int, heap: Heap | None = None) -> WarmModel:
    """Verify, load and warm the model: everything between a URI and readiness. Raises Refusal."""
    from slipway_runtime.artefact.arrival import arrived
    from slipway_runtime.models.fidelity import compare_with_fp32
    from slipway_runtime.models.loading import load

    settings = source.model
    goldens = [] if source.warmup.file is None else read_goldens(source.warmup.file)
    limit = source.limits.max_batch_size
    with arrived(settings) as artefact:
        kind, digest = artefact.kind.value, artefact.digest
        journal.record(
            "loading",
            model=settings.name,
            version=settings.version,
            kind=kind,
            sha256=digest,
            verified=artefact.verified,
            signed=artefact.signed,
        )
        if heap is not None:
            heap.settle(artefact.kind)
        places = places_of(settings, artefact.description.instances)
        _use_threads(threads // len(places))
        first = load(artefact, places[0])
        program = first.program
        max_rows = limit if first.max_rows is None else min(limit, first.max_rows)
        sizes = _sizes(program, max_rows)
        timings = warm_up(program, source.warmup.requests, sizes, first.free, goldens)
        compare_with_fp32(artefact, places[0], first, [one.request.inputs for one in goldens], sizes[-1])
        others = [load(artefact, place).program for place in places[1:]]
        return WarmModel((program, *others), max_rows, timings, artefact.digest, first.free)


def warm_copy(source: Source, warm: WarmModel, copy: Model, threads: int) -> None:
    """Warm another copy up, on its own thread. Raises Refusal."""
    goldens = [] if source.warmup.file is None else read_goldens(source.warmup.file)
    _use_threads(threads // len(warm.copies))
    warm_up(copy, source.warmup.requests, _sizes(copy, warm.max_batch_size), warm.free, goldens)


def _sizes(model: Model, max_rows: int) -> list[int]:
    return sorted({1, max_rows}) if model.signature.batched else [1]


def places_of(settings: ModelSettings, said: int | None) -> list[ModelSettings]:
    """The settings of every copy: so many on each device."""
    count = settings.instances or said or 1
    devices = settings.cuda_devices or (settings.cuda_device,)
    return [replace(settings, cuda_device=device) for device in devices for _ in range(count)]
