"""Spans of finished requests, exported by OTLP over HTTP.

They are made after the answer has gone, on a thread of their own, and only for requests whose trace is recorded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from slipway_runtime import __version__, journal
from slipway_runtime.telemetry.outbox import Outbox
from slipway_runtime.telemetry.trace_context import TraceContext
from slipway_runtime.telemetry.watch import Execution, Watch

_CAPACITY = 4096
_LOT = 256
_EXPORT_SECONDS = 5.0
_TOLD_EVERY = 60.0
_MAX_LINKS = 32
_NS = 1_000_000_000
_SERVER_ERROR = 500

Finished = tuple[Watch, int, int, str, float, float]
"""Watch, HTTP status, bytes sent, gRPC status, and the end: seconds since 1970 and monotonic."""


class SpanExport:
    """Sends the spans of requests to a collector; when it is away they are dropped and counted."""

    def __init__(self, endpoint: str, resource: dict[str, str], capacity: int = _CAPACITY) -> None:
        """``endpoint`` is the collector's base URL, such as ``http://collector:4318``, or one that ends in
        ``/v1/traces``; ``resource`` says who we are. Raises ImportError where OpenTelemetry is not installed.
        """
        # Only servers that trace need the packages.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        # What the exporter says of a collector that is away is said here, once a minute.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        logging.getLogger("opentelemetry").propagate = False
        url = endpoint.rstrip("/")
        url = url if url.endswith("/v1/traces") else f"{url}/v1/traces"
        self._exporter = OTLPSpanExporter(endpoint=url, timeout=_EXPORT_SECONDS)
        self._resource = Resource.create({"slipway.runtime.version": __version__, **resource})
        self._told = -_TOLD_EVERY
        self._outbox: Outbox[Finished] = Outbox("span-export", self._send, capacity, _LOT, period=1.0)

    @property
    def dropped(self) -> int:
        """Requests whose spans the collector did not get."""
        return self._outbox.dropped

    def note(self, finished: Finished) -> None:
        """Take a finished request whose trace is recorded."""
        self._outbox.put(finished)

    def close(self, seconds: float) -> None:
        """Send what is left, within ``seconds``."""
        # The exporter waits between attempts: a shutdown ends its wait, so that a drain does not wait with it.
        ending = threading.Timer(seconds / 2, self._exporter.shutdown)
        ending.daemon = True
        ending.start()
        self._outbox.close(seconds)
        ending.cancel()

    def _send(self, lot: Sequence[Finished]) -> int:
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [span for one in lot for span in spans_of(one, self._resource)]
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return 0
        if time.monotonic() - self._told >= _TOLD_EVERY:
            self._told = time.monotonic()
            journal.record("traces-lost", "warning", requests=len(lot), dropped=self.dropped + len(lot))
        return len(lot)


def spans_of(finished: Finished, resource: Any) -> Iterator[Any]:
    """The spans of a request: the request, and for each execution the wait for it and the model's run."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanKind, Status, StatusCode

    watch, status, sent, rpc_status, wall, ended = finished

    def nanoseconds(moment: float) -> int:
        return int((wall - (ended - moment)) * _NS)

    own = _context(watch.trace, watch.trace.span_id)
    parent = _context(watch.trace, watch.trace.parent_id, remote=True) if watch.trace.parent_id else None
    yield ReadableSpan(
        name=f"{watch.method} {watch.model}".strip(),
        context=own,
        parent=parent,
        resource=resource,
        attributes=_attributes(watch, status, sent, rpc_status),
        kind=SpanKind.SERVER,
        status=Status(StatusCode.ERROR) if status >= _SERVER_ERROR else Status(),
        start_time=nanoseconds(watch.begun),
        end_time=nanoseconds(ended),
    )
    for number, execution in enumerate(watch.executions):
        for name, start, seconds, links in _parts(execution):
            yield ReadableSpan(
                name=name,
                context=_context(watch.trace, _child_id(watch.trace.span_id, 2 * number + (name == "compute"))),
                parent=own,
                resource=resource,
                attributes={"slipway.batch.rows": execution.rows, "slipway.batch.requests": execution.requests},
                links=links,
                kind=SpanKind.INTERNAL,
                start_time=nanoseconds(start),
                end_time=nanoseconds(start + seconds),
            )


def _parts(execution: Execution) -> Iterator[tuple[str, float, float, list[Any]]]:
    from opentelemetry.trace import Link

    links = [Link(_context(one, one.span_id)) for one in execution.company[:_MAX_LINKS]]
    yield "queue", execution.arrived, execution.started - execution.arrived, []
    yield "compute", execution.started, execution.seconds, links


def _child_id(span_id: str, number: int) -> str:
    """Ids of the parts of a request: derived from its own, so that nothing has to be drawn for them."""
    return f"{(int(span_id, 16) + number + 1) % 2**64 or 1:016x}"


def _context(trace: TraceContext, span_id: str, *, remote: bool = False) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    state = TraceState.from_header([trace.state]) if trace.state else None
    flags = TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(trace.trace_id, 16), int(span_id, 16), remote, flags, state)


def _attributes(watch: Watch, status: int, sent: int, rpc_status: str) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "slipway.model": watch.model,
        "slipway.version": watch.version,
        "slipway.request_id": watch.request_id,
        "client.address": watch.remote.rpartition(":")[0],
    }
    if watch.protocol == "grpc":
        found |= {"rpc.system": "grpc", "rpc.method": watch.target.lstrip("/"), "rpc.grpc.status": rpc_status}
    else:
        found |= {
            "http.request.method": watch.method,
            "url.path": watch.target.partition("?")[0],
            "http.request.body.size": watch.received,
            "http.response.status_code": status,
            "http.response.body.size": sent,
        }
    optional = {"slipway.id": watch.protocol_id, "slipway.tenant": watch.tenant}
    return found | {name: value for name, value in optional.items() if value}
