"""One request waiting for, or in, execution."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.telemetry.watch import Watch
from slipway_runtime.tensors.tensor import Signature, Tensor

Outcome = tuple[Tensor, ...] | RequestFailure
# What may run together: names, datatypes and the dimensions behind the rows.
GroupKey = tuple[tuple[str, str, tuple[int, ...]], ...]


# Share of its time that a request may spend waiting for company: the rest is for the model.
_WAITING_SHARE = 0.9


class JobState(Enum):
    """Where a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True, eq=False)
class Job:
    """A request, its time of arrival and deadline (monotonic seconds) and who waits for its outcome.

    ``lag`` is how many seconds it lets more important jobs go first; see ``serving.waiting``.
    """

    request: InferRequest
    rows: int
    key: GroupKey | None
    arrived: float
    done: Callable[[Outcome], None]
    deadline: float = math.inf
    lag: float = 0.0
    state: JobState = JobState.QUEUED
    timer: asyncio.TimerHandle | None = None
    watch: Watch | None = None
    """Where it is noted how the request fared, if anybody wants to know."""

    @property
    def urgency(self) -> float:
        """The job with the least goes first."""
        return self.arrived + self.lag

    @property
    def latest_start(self) -> float:
        """When it goes at the latest, alone if need be."""
        return self.arrived + _WAITING_SHARE * (self.deadline - self.arrived)

    def finish(self, outcome: Outcome) -> None:
        """Hand over the outcome, once; later outcomes (after a timeout) are dropped."""
        if self.state is JobState.DONE:
            return
        self.state = JobState.DONE
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.done(outcome)


def batch_key(signature: Signature, request: InferRequest) -> tuple[int, GroupKey | None]:
    """Rows of a request and its group; None as group means: runs alone."""
    tensors = request.inputs
    if not signature.batched:
        return 1, None
    if signature.open:
        fits = all(
            (spec := signature.input(tensor.name)) is not None and spec.mismatch(tensor) is None for tensor in tensors
        )
        if not fits or len({tensor.shape[0] for tensor in tensors}) != 1:
            return 1, None
    parts: list[tuple[str, str, tuple[int, ...]]] = [(one.name, one.datatype, one.shape[1:]) for one in tensors]
    if len(parts) > 1:
        parts.sort()
    return tensors[0].shape[0], tuple(parts)
