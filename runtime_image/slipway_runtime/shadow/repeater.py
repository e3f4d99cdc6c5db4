"""Repeats a sampled share of answered requests to the candidate, and to ourselves to know the noise.

Nothing here is ever waited for by a user: requests are repeated after their answer, from a short queue. What does not
fit into it is dropped and counted, and a request is repeated to ourselves only while nobody else waits.

The candidate and we ourselves are given different requests wherever the share leaves room for that, so that what is
learned of the one is independent of what is learned of the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from slipway_runtime import journal
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import ModelService
from slipway_runtime.shadow.candidate import CandidateClient, NoAnswer, WrongAnswer
from slipway_runtime.shadow.comparison import agree
from slipway_runtime.shadow.config import Comparator, ShadowConfig, ShadowFile
from slipway_runtime.telemetry.trace_context import TraceContext
from slipway_runtime.telemetry.watch import Watch
from slipway_runtime.tensors.tensor import Tensor

_POLL_SECONDS = 1.0
_SAMPLES = 1_000_000
_HEAVY_BYTES = 256 * 1024
_SELF_SHARE = 0.25
"""Requests repeated to ourselves for each one repeated to the candidate."""

Outputs = tuple[Tensor, ...]


class Result(StrEnum):
    """What became of a repetition. ``dropped``: there was nothing to compare."""

    AGREE = "agree"
    DIFFER = "differ"
    ERROR = "error"
    DROPPED = "dropped"


class Pair(StrEnum):
    """Whose answer is compared with the one that the user got."""

    CANDIDATE = "candidate"
    SELF = "self"


@dataclass(frozen=True)
class Allowance:
    """What shadowing may use: requests and bytes waiting, repetitions at once, seconds for one."""

    queue: int = 32
    queue_bytes: int = 32 * 1024 * 1024
    at_once: int = 4
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class _Repetition:
    config: ShadowConfig
    pairs: tuple[Pair, ...]
    inputs: Outputs
    outputs: Outputs
    authorization: str
    trace: TraceContext | None
    size: int


class Repeater:
    """One per server; does nothing while its file names no candidate."""

    def __init__(
        self,
        service: ModelService,
        file: ShadowFile,
        allowance: Allowance | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``draw`` gives numbers in [0, 1) and decides on requests without any id."""
        self._service = service
        self._file = file
        self._allowance = allowance or Allowance()
        self._draw = draw
        self._config: ShadowConfig | None = None
        self._queue: asyncio.Queue[_Repetition] = asyncio.Queue(self._allowance.queue)
        self._waiting_bytes = 0
        self._client = CandidateClient(
            service.name, self._allowance.timeout, self._allowance.at_once, self._allowance.queue_bytes
        )
        self._tasks = [asyncio.create_task(self._follow_file())]
        self._tasks += [asyncio.create_task(self._work()) for _ in range(self._allowance.at_once)]

    def offer(
        self,
        request: InferRequest,
        outputs: Outputs,
        request_id: str,
        authorization: str = "",
        watch: Watch | None = None,
    ) -> None:
        """A live request has been answered with ``outputs``: repeat it, if it is one of the sample.

        ``request_id`` decides, so that retries and all servers agree on it. ``authorization`` goes with it, since the
        candidate is as guarded as we are; the repetition is in the trace of the request that is watched.
        """
        config = self._config
        if config is None:
            return
        pairs = self._sampled(config, request_id or request.id)
        if not pairs:
            return
        size = sum(tensor.array.nbytes for tensor in (*request.inputs, *outputs))
        if self._queue.full() or self._waiting_bytes + size > self._allowance.queue_bytes:
            for pair in pairs:
                self._count(config, pair, Result.DROPPED)
            return
        self._waiting_bytes += size
        trace = None if watch is None else watch.trace
        self._queue.put_nowait(_Repetition(config, pairs, request.inputs, outputs, authorization, trace, size))

    async def close(self) -> None:
        """Stop; what still waits is forgotten."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    def _sampled(self, config: ShadowConfig, request_id: str) -> tuple[Pair, ...]:
        """Whom a request is repeated to: the candidate's share lies at one end of all draws, ours at the other."""
        share = zlib.crc32(request_id.encode()) % _SAMPLES / _SAMPLES if request_id else self._draw()
        own = (Pair.SELF,) if share * 100 >= 100 - _SELF_SHARE * config.percent else ()
        return (*own, Pair.CANDIDATE) if share * 100 < config.percent else own

    def _count(self, config: ShadowConfig, pair: Pair, result: Result) -> None:
        self._service.metrics.shadow_compared(config.candidate, pair, result)

    async def _follow_file(self) -> None:
        while True:
            config = await asyncio.to_thread(self._file.read)
            if config is not None and config.stable not in ("", self._service.revision):
                config = None
            if config != self._config:
                self._config = config
                self._announce(config)
            await asyncio.sleep(_POLL_SECONDS)

    def _announce(self, config: ShadowConfig | None) -> None:
        if config is None:
            journal.record("shadow", active=False)
            return
        # All series exist from the start: the first count of one that appears with it could not be seen.
        for pair in Pair:
            for result in Result:
                self._service.metrics.shadow_series(config.candidate, pair, result)
        journal.record("shadow", active=True, candidate=config.candidate, percent=config.percent)

    async def _work(self) -> None:
        while True:
            repetition = await self._queue.get()
            self._waiting_bytes -= repetition.size
            if repetition.config != self._config:
                continue
            for pair in repetition.pairs:
                result = Result.DROPPED
                try:
                    ask = self._own_answer if pair is Pair.SELF else self._candidate_answer
                    theirs = await ask(repetition)
                    result = await self._compare(repetition, theirs)
                except WrongAnswer:
                    result = Result.ERROR
                except NoAnswer:
                    result = Result.DROPPED
                except Exception as error:
                    journal.record("shadow-failed", "error", cause=f"{type(error).__name__}: {error}")
                self._count(repetition.config, pair, result)

    async def _candidate_answer(self, repetition: _Repetition) -> Outputs:
        target, inputs = repetition.config.target, repetition.inputs
        return await self._client.infer(target, inputs, repetition.authorization, repetition.trace)

    async def _own_answer(self, repetition: _Repetition) -> Outputs:
        """Our own second answer. Raises NoAnswer where users wait, WrongAnswer where we fail now."""
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            with contextlib.suppress(asyncio.InvalidStateError):
                answered.set_result(outcome)

        try:
            _, batcher = self._service.serving()
            if batcher.waiting:
                raise NoAnswer("users wait")
            batcher.submit(InferRequest(repetition.inputs, timeout=self._allowance.timeout), done)
        except RequestFailure as failure:
            raise NoAnswer(failure.text) from failure
        outcome = await answered
        if isinstance(outcome, RequestFailure):
            raise NoAnswer(outcome.text)
        return outcome

    async def _compare(self, repetition: _Repetition, theirs: Outputs) -> Result:
        ours, comparator = repetition.outputs, repetition.config.compare
        if repetition.size > _HEAVY_BYTES:
            same = await asyncio.to_thread(agree, ours, theirs, Comparator(comparator))
        else:
            same = agree(ours, theirs, comparator)
        return Result.AGREE if same else Result.DIFFER
