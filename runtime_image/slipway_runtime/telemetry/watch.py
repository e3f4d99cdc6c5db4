"""What is noted about one request while it is served, and the clock readings behind its log line and its spans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from slipway_runtime.telemetry.trace_context import RESPONSE_HEADER, TraceContext

ROUTINE = ("/v2/health/", "/metrics", "/grpc.health.v1.Health/", "/inference.GRPCInferenceService/Server")
"""Probes and scrapes come every second; they would bury the requests."""
REQUEST_ID_HEADER = "x-request-id"

# A stream is one request of many executions: so many of them get spans of their own.
_MAX_EXECUTIONS = 64


class Execution(NamedTuple):
    """One run of the model. Times are monotonic seconds; ``company`` are the recorded requests of the batch."""

    arrived: float
    started: float
    seconds: float
    rows: int
    requests: int
    company: tuple[TraceContext, ...]


@dataclass(slots=True, eq=False)
class Watch:
    """A request that is observed. Without an access log and without traces there is none."""

    protocol: str
    method: str
    target: str
    trace: TraceContext
    request_id: str
    begun: float
    finish: Callable[[Watch, int, int, str], None]
    """Called once with the HTTP status, the bytes sent, and the gRPC status if there is one."""
    remote: str = ""
    tenant: str = ""
    received: int = 0
    model: str = ""
    version: str = ""
    protocol_id: str = ""
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    executions: list[Execution] = field(default_factory=list)

    @property
    def answer_headers(self) -> tuple[tuple[str, str], ...]:
        """What the client is told about its request."""
        return (REQUEST_ID_HEADER, self.request_id), (RESPONSE_HEADER, self.trace.header)

    @property
    def subject(self) -> dict[str, str]:
        """The fields by which log lines name this request."""
        return {"request_id": self.request_id, "trace_id": self.trace.trace_id}

    def admitted(self, model: str, version: str, protocol_id: str) -> None:
        """The request waits for execution by this model."""
        self.model, self.version, self.protocol_id = model, version, protocol_id

    def executed(self, execution: Execution) -> None:
        """The model has run for the recorded request: there will be spans of it."""
        if len(self.executions) < _MAX_EXECUTIONS:
            self.executions.append(execution)


CURRENT: ContextVar[Watch | None] = ContextVar("slipway_watch", default=None)
"""The request that is being worked on, where that is known."""


def note_batch(
    watched: Sequence[tuple[Watch, float]], started: float, seconds: float, rows: int, requests: int
) -> None:
    """Tell the watched requests of a batch, each with the time of its arrival, how it ran."""
    company = tuple(watch.trace for watch, _ in watched if watch.trace.sampled)
    for watch, arrived in watched:
        watch.queue_seconds += started - arrived
        watch.compute_seconds += seconds
        if watch.trace.sampled:
            others = tuple(one for one in company if one is not watch.trace)
            watch.executed(Execution(arrived, started, seconds, rows, requests, others))
