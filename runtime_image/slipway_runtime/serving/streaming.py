"""Answers in parts: requests to a model that yields. Lives on the event-loop thread.

The executor takes the streams in turn, a short slice at a time, so that one long answer holds up no other. What a
client has not fetched waits in a small buffer; when that is full the model is not asked for more.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, cast

from slipway_runtime import journal
from slipway_runtime.handler import BadRequest
from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.models.model import DeviceLost, OutOfMemory
from slipway_runtime.protocol.failures import RequestFailure, model_failed, overloaded, refused, timed_out, unavailable
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.executor import Instance
from slipway_runtime.settings import Limits
from slipway_runtime.telemetry.watch import CURRENT, Watch, note_batch
from slipway_runtime.tensors.tensor import Tensor

Outputs = tuple[Tensor, ...]

BUFFER = 16
"""Parts of an answer that wait for its client."""
_SLICE = 0.002
"""Seconds after which the executor turns to the next stream."""
_STALL = 60.0
"""Seconds after which a client that fetches nothing has lost its stream."""


class StreamingModel(Protocol):
    """A model that answers in parts."""

    def stream(self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Iterator[Outputs]:
        """The parts of the answer to a request with ``parameters``; closed early when nobody wants the rest."""


@dataclass(eq=False)
class _Lane:
    """An instance and the streams it works on."""

    instance: Instance
    ready: deque[Stream] = field(default_factory=deque)
    streams: int = 0
    busy: bool = False


@dataclass(slots=True)
class _Slice:
    """What an instance did for a stream in one go."""

    ended: bool = False
    error: BaseException | None = None
    seconds: float = 0.0


class Stream:
    """One request and the parts of its answer that are there. ``take`` and ``cancel`` are for its client."""

    def __init__(self, runner: StreamRunner, lane: _Lane, request: InferRequest, notify: Callable[[], None]) -> None:
        self.request = request
        self.failure: RequestFailure | None = None
        self.arrived = time.monotonic()
        self.wait: float | None = None
        self.seconds = 0.0
        self.lane = lane
        self.loop = asyncio.get_running_loop()
        self.running = False
        self.over = False
        """No part will be added."""
        self.closed = False
        self.notify = notify
        self.buffer: deque[Outputs] = deque()
        """Filled by the executor's thread."""
        self.told = True
        """Whether the event loop is going to look into the buffer."""
        self.iterator: Iterator[Outputs] | None = None
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self._runner = runner
        self.watch = CURRENT.get()
        self.noted = False

    @property
    def finished(self) -> bool:
        """Whether all parts were taken; ``failure`` tells how it ended."""
        return self.over and not self.buffer

    @property
    def room(self) -> int:
        """Parts that may be added."""
        return BUFFER - len(self.buffer)

    def take(self) -> Outputs | None:
        """The next part; None if there is none now, or (``finished``) ever. ``notify`` is called on news."""
        if not self.buffer:
            return None
        part = self.buffer.popleft()
        self._runner.taken(self)
        return part

    def cancel(self) -> None:
        """The client left: the model's generator is closed."""
        self.notify = _nobody
        self._runner.end(self, None)


class StreamRunner:
    """The streams of one model, spread over its instances."""

    def __init__(
        self,
        instances: Sequence[Instance],
        limits: Limits,
        metrics: ServingMetrics,
        statistics: ModelStatistics,
        device_lost: Callable[[BaseException], None],
    ) -> None:
        self._lanes = [_Lane(instance) for instance in instances]
        self._limits = limits
        self._metrics = metrics
        self._statistics = statistics
        self._device_lost = device_lost
        self._loop = asyncio.get_running_loop()
        self._active: set[Stream] = set()

    @property
    def active(self) -> int:
        """Streams whose generator is not closed yet."""
        return len(self._active)

    def open(self, request: InferRequest, notify: Callable[[], None]) -> Stream:
        """Begin to answer a request that was checked against the signature. Raises RequestFailure (429).

        ``notify`` is called on the event loop whenever there may be something to take. The request's own timeout is
        for the whole answer, the server's for each part of it.
        """
        most = self._limits.max_concurrency or self._limits.max_queue
        if len(self._active) >= most:
            raise overloaded("the server answers as many streams at once as it may")
        lane = min(self._lanes, key=lambda one: one.streams)
        stream = Stream(self, lane, request, notify)
        lane.streams += 1
        self._active.add(stream)
        if stream.watch is not None:
            stream.watch.admitted(self._metrics.model, self._metrics.version, request.id)
        if request.timeout is not None:
            stream.timers["whole"] = self._loop.call_later(request.timeout, self.end, stream, timed_out())
        self._queue(stream)
        return stream

    def taken(self, stream: Stream) -> None:
        """A part was taken: with room for half a buffer the model goes on."""
        if not stream.over and not stream.running and stream.room * 2 >= BUFFER and stream not in stream.lane.ready:
            self._queue(stream)

    def end(self, stream: Stream, failure: RequestFailure | None) -> None:
        """No more of it: with a ``failure`` the client is told, once it has taken what is there."""
        if not stream.over:
            _note(stream)
            stream.over = True
            stream.failure = failure
            self._stop_timers(stream)
            if not stream.running:
                self._close(stream)
        if failure is None:
            stream.buffer.clear()
        stream.notify()

    def end_all(self) -> None:
        """End of a drain: what still goes on is cut off."""
        for stream in list(self._active):
            self.end(stream, unavailable("the server is shutting down"))

    def _queue(self, stream: Stream) -> None:
        self._watch(stream, self._limits.timeout, timed_out())
        stream.lane.ready.append(stream)
        self._advance(stream.lane)

    def _watch(self, stream: Stream, seconds: float, failure: RequestFailure) -> None:
        if "part" in stream.timers:
            stream.timers["part"].cancel()
        stream.timers["part"] = self._loop.call_later(seconds, self.end, stream, failure)

    def _stop_timers(self, stream: Stream) -> None:
        for timer in stream.timers.values():
            timer.cancel()
        stream.timers.clear()

    def _advance(self, lane: _Lane) -> None:
        while lane.ready and not lane.busy:
            stream = lane.ready.popleft()
            if stream.over:
                continue
            lane.busy = stream.running = True
            if stream.wait is None:
                stream.wait = time.monotonic() - stream.arrived
            lane.instance.executor.started()
            model = cast(StreamingModel, lane.instance.model)
            work = partial(_run_slice, stream, model)
            stream.told = False
            lane.instance.executor.submit(work, partial(self._ran, stream))

    def _ran(self, stream: Stream, done: _Slice | None, error: BaseException | None) -> None:
        lane = stream.lane
        lane.busy = stream.running = False
        done = done or _Slice(error=error)
        lane.instance.executor.finished(done.seconds)
        stream.seconds += done.seconds
        if done.error is not None or done.ended:
            _note(stream)
        if done.error is not None:
            self.end(stream, self._failure_of(done.error, stream.watch))
        elif done.ended and not stream.over:
            stream.over = True
            self._stop_timers(stream)
            stream.notify()
        if stream.over:
            self._close(stream)
        else:
            if stream.room:
                self._queue(stream)
            else:
                self._watch(stream, _STALL, unavailable("the client fetches nothing"))
            stream.notify()
        self._advance(lane)

    def _failure_of(self, error: BaseException, watch: Watch | None) -> RequestFailure:
        if isinstance(error, BadRequest):
            return refused(error)
        with journal.about(() if watch is None else (watch,)):
            journal.record("stream-failed", "error", cause=f"{type(error).__name__}: {error}")
        if isinstance(error, DeviceLost):
            self._device_lost(error)
        if isinstance(error, OutOfMemory):
            return unavailable("the device has not enough memory for this request")
        return model_failed()

    def _close(self, stream: Stream) -> None:
        """Let go of the generator, on the thread it runs on, and count the request."""
        if stream.closed:
            return
        stream.closed = True
        if stream.wait is not None:
            self._metrics.batch_finished(1, [stream.wait])
            self._statistics.batch_finished(1, [stream.wait], stream.seconds)
        stream.lane.instance.executor.submit(partial(_close_iterator, stream), partial(self._gone, stream))

    def _gone(self, stream: Stream, _: object, error: BaseException | None) -> None:
        if error is not None:
            journal.record("stream-not-closed", "error", cause=f"{type(error).__name__}: {error}")
        stream.lane.streams -= 1
        self._active.discard(stream)


def _note(stream: Stream) -> None:
    """Tell whoever watches the request how it ran, before its client has all of it."""
    watch = stream.watch
    if watch is not None and stream.wait is not None and not stream.noted:
        stream.noted = True
        note_batch([(watch, stream.arrived)], stream.arrived + stream.wait, stream.seconds, 1, 1)


def _nobody() -> None:
    """Who is told of a stream whose client left."""


def _tell(stream: Stream) -> None:
    stream.told = False
    stream.notify()


def _run_slice(stream: Stream, model: StreamingModel) -> _Slice:
    """Fetch parts while there is room and time; on the executor's thread. Each is on its way at once."""
    done = _Slice()
    begun = time.perf_counter()
    try:
        if stream.iterator is None:
            stream.iterator = model.stream(stream.request.inputs, stream.request.parameters or {})
        while stream.room > 0 and not stream.over and time.perf_counter() - begun < _SLICE:
            stream.buffer.append(next(stream.iterator))
            if not stream.told:
                stream.told = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    stream.loop.call_soon_threadsafe(_tell, stream)
    except StopIteration:
        done.ended = True
    except BaseException as error:
        done.error = error
    done.seconds = time.perf_counter() - begun
    return done


def _close_iterator(stream: Stream) -> None:
    iterator, stream.iterator = stream.iterator, None
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
