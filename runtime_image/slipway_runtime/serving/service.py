"""The served model as the endpoints see it: its identity, its phase, its batcher."""

from __future__ import annotations

import math
import time
from enum import Enum

from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.statistics import ModelStatistics
from slipway_runtime.models.model import Model
from slipway_runtime.protocol.failures import overloaded, unavailable
from slipway_runtime.serving.batcher import Batcher
from slipway_runtime.serving.executor import Executor


class Phase(Enum):
    """The life of a server. While DRAINING it still serves; when CLOSING it refuses requests that begin then."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    CLOSING = "closing"
    FAILED = "failed"


class ModelService:
    """One model under one name and version."""

    def __init__(self, name: str, version: str, revision: str, executor: Executor) -> None:
        self.name = name
        self.version = version
        self.revision = revision
        self.executor = executor
        self.metrics = ServingMetrics(name, version, revision)
        self.statistics = ModelStatistics()
        self.phase = Phase.LOADING
        self._closing_since = math.inf
        self.sha256 = ""
        self.max_batch_size = 1
        self.max_delay = 0.0
        self._model: Model | None = None
        self._batcher: Batcher | None = None

    @property
    def ready(self) -> bool:
        """Loaded, warm, not draining, and the executor is alive."""
        return self.phase is Phase.READY and self.executor.alive

    @property
    def model(self) -> Model | None:
        """The model, once it is loaded."""
        return self._model

    def start(self, model: Model, batcher: Batcher, max_batch_size: int, max_delay: float, *, sha256: str = "") -> None:
        """The model, whose artefact has the digest ``sha256``, is loaded and warm: serve it."""
        self.sha256 = sha256
        self._model = model
        self._batcher = batcher
        self.max_batch_size = max_batch_size
        self.max_delay = max_delay
        self.enter(Phase.READY)

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        self.phase = phase
        if phase is Phase.CLOSING:
            self._closing_since = time.monotonic()
        self.metrics.ready.set(1.0 if phase is Phase.READY else 0.0)

    def admit_shadow(self, batcher: Batcher) -> None:
        """Raises RequestFailure (429) for a repeated request while others fill more than a batch: they go first."""
        if batcher.waiting > self.max_batch_size:
            raise overloaded("repeated requests wait until users have their answers")

    def serving(self, begun: float = math.inf) -> tuple[Model, Batcher]:
        """Model and batcher, if requests are taken. Raises RequestFailure (503) otherwise.

        ``begun`` is the monotonic time at which the request's first byte came: one that was on its way before the
        server closed is served to its end.
        """
        if self._model is None or self._batcher is None:
            raise unavailable("the model is not ready yet")
        if self.phase is Phase.CLOSING and begun >= self._closing_since:
            raise unavailable("the server is shutting down")
        if self.phase is Phase.FAILED or not self.executor.alive:
            raise unavailable("the model's device has failed, the server restarts")
        return self._model, self._batcher

    @property
    def unfinished(self) -> int:
        """Requests admitted and not answered."""
        return 0 if self._batcher is None else self._batcher.unfinished

    def refuse_waiting(self) -> None:
        """Answer everything that still waits with 503."""
        if self._batcher is not None:
            self._batcher.refuse_waiting()

    def metrics_text(self) -> bytes:
        """The Prometheus exposition."""
        return self.metrics.render(self.executor.busy_seconds)
