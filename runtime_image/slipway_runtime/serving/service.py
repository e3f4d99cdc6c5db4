"""One loaded model as the endpoints see it: its identity, its phase, its batcher and what is counted about it."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.models.model import Model
from slipway_runtime.processors import return_free_memory
from slipway_runtime.protocol.failures import overloaded, unavailable
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.executor import Instance
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.streaming import StreamRunner
from slipway_runtime.serving.trial import Trial
from slipway_runtime.telemetry.watch import CURRENT

_PATIENCE = 60.0
"""Seconds in the model after which an executor counts as stuck, unless requests have longer."""


class Batching(Protocol):
    """What requests are given to: a ``Batcher``, or one that remembers answers."""

    @property
    def streams(self) -> StreamRunner | None:
        """Where requests go whose model answers in parts."""

    @property
    def plain(self) -> Batching:
        """The one that asks the model every time."""

    @property
    def unfinished(self) -> int:
        """Requests admitted and not finished."""

    @property
    def waiting(self) -> int:
        """Requests admitted and not started."""

    def submit(self, request: InferRequest, done: Callable[[Outcome], None], tenant_lag: float = 0.0) -> Any:
        """See ``Batcher.submit``; gives what ``cancel`` takes."""

    def cancel(self, job: Any) -> None:
        """The client left."""

    def refuse_waiting(self) -> None:
        """Answer all that still waits with 503."""

    def hurry(self, hurried: bool) -> None:
        """Whether requests go without company."""

    def forget(self) -> None:
        """Drop the answers that are kept."""


class Phase(Enum):
    """The life of a model. While DRAINING it still serves; when CLOSING it refuses requests that begin then."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    CLOSING = "closing"
    FAILED = "failed"
    RELEASED = "released"


class ModelService:
    """One load of a model under one name and version; a model that takes its place is another ModelService."""

    def __init__(
        self,
        name: str,
        version: str,
        revision: str,
        metrics: ServingMetrics | None = None,
        statistics: ModelStatistics | None = None,
    ) -> None:
        """``metrics`` and ``statistics`` are given when an earlier load under the same identity has counted already."""
        self.name = name
        self.version = version
        self.revision = revision
        self.metrics = metrics or ServingMetrics(name, version, revision)
        self.statistics = statistics or ModelStatistics()
        self.phase = Phase.LOADING
        self._closing_since = math.inf
        self.sha256 = ""
        self.max_batch_size = 1
        self.max_delay = 0.0
        self.patience = _PATIENCE
        self._model: Model | None = None
        self._batcher: Batching | None = None
        self._instances: tuple[Instance, ...] = ()
        self._pending = 0
        self.trial: Trial | None = None

    @property
    def ready(self) -> bool:
        """Loaded, warm, not draining, and an executor answers."""
        return self.phase is Phase.READY and self.responsive

    @property
    def responsive(self) -> bool:
        """Whether an executor is alive and not stuck in the model."""
        return any(instance.executor.responsive(self.patience) for instance in self._instances)

    @property
    def model(self) -> Model | None:
        """The model, once it is loaded."""
        return self._model

    @property
    def instances(self) -> int:
        """Copies of the model that compute."""
        return len(self._instances)

    def start(
        self,
        instances: Sequence[Instance],
        batcher: Batching,
        max_batch_size: int,
        max_delay: float,
        *,
        sha256: str = "",
    ) -> None:
        """The model, whose artefact has the digest ``sha256``, is loaded and warm: serve it."""
        self.sha256 = sha256
        self._model = instances[0].model
        self._instances = tuple(instances)
        self._batcher = batcher
        self.max_batch_size = max_batch_size
        self.max_delay = max_delay
        self.enter(Phase.READY)

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        self.phase = phase
        if phase is Phase.CLOSING:
            self._closing_since = time.monotonic()
        if self._batcher is not None:
            # Of a server that drains, clients are on their way to others.
            self._batcher.hurry(phase is not Phase.READY)
        self.metrics.ready.set(1.0 if phase is Phase.READY else 0.0)

    def admit_shadow(self, batcher: Batching) -> None:
        """Raises RequestFailure (429) for a repeated request while others fill more than a batch: they go first."""
        if batcher.waiting > self.max_batch_size:
            raise overloaded("repeated requests wait until users have their answers")

    def serving(self, begun: float = math.inf) -> tuple[Model, Batching]:
        """Model and batcher, if requests are taken. Raises RequestFailure (503) otherwise.

        ``begun`` is the monotonic time at which the request's first byte came: one that was on its way before the
        server closed is served to its end.
        """
        if self._model is None or self._batcher is None:
            raise unavailable("the model is not ready yet" if self.phase is Phase.LOADING else "the model was unloaded")
        if self.phase is Phase.CLOSING and begun >= self._closing_since:
            raise unavailable("the server is shutting down")
        if self.phase is Phase.FAILED or not self._alive():
            raise unavailable("the model's device has failed, the server restarts")
        return self._model, self._batcher

    def _alive(self) -> bool:
        for instance in self._instances:  # noqa: SIM110 - several times as fast, on every request
            if instance.executor.alive:
                return True
        return False

    def request_began(self, *, named: bool = True) -> None:
        """A request for this model is here: the model is kept until ``request_ended``.

        ``named``: it said so itself, and the log says it as well, whatever becomes of the request.
        """
        self._pending += 1
        self.metrics.in_flight.add()
        if named and (watch := CURRENT.get()) is not None:
            watch.admitted(self.name, self.version, watch.protocol_id)

    def request_ended(self, code: int, shadow: bool, seconds: float) -> None:
        """The request was answered with ``code`` after ``seconds``, or given up."""
        self._pending -= 1
        self.metrics.in_flight.add(-1)
        self.metrics.request_finished(code, shadow, seconds)
        self.statistics.request_finished(code == HTTPStatus.OK, seconds)
        if self.trial is not None:
            self.trial.judge(code)

    @property
    def unfinished(self) -> int:
        """Requests taken and not answered."""
        return max(self._pending, 0 if self._batcher is None else self._batcher.unfinished)

    def step_aside(self) -> None:
        """Another model takes this one's place: what waits goes without company, since none comes any more.

        And no answers are kept for it to give when it comes back.
        """
        if self._batcher is not None:
            self._batcher.forget()
            self._batcher.hurry(True)

    def refuse_waiting(self) -> None:
        """Answer everything that still waits with 503."""
        if self._batcher is not None:
            self._batcher.refuse_waiting()

    def busy_seconds(self) -> float:
        """Seconds spent executing so far, of a copy of the model on average."""
        if not self._instances:
            return 0.0
        return sum(instance.executor.busy_seconds() for instance in self._instances) / len(self._instances)

    def release(self) -> None:
        """Free the model, on the threads that ran it; nothing may be unfinished."""
        self.phase = Phase.RELEASED
        self.step_aside()
        boxes = [(instance.executor, [instance.model]) for instance in self._instances]
        self._instances, self._model, self._batcher = (), None, None
        for executor, box in boxes:
            executor.submit(partial(_let_go, box), lambda result, error: None)
            executor.stop()


def _let_go(box: list[Model]) -> None:
    """Drop the last reference to a model, and give its memory back."""
    accelerated = box[0].on_accelerator
    box.clear()
    gc.collect()
    return_free_memory()
    if accelerated:
        import torch

        torch.cuda.empty_cache()
