"""One HTTP request and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from slipway_runtime.metrics.recorder import CLIENT_GONE
from slipway_runtime.protocol.answer import Answer
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.serving.service import ModelService
from slipway_runtime.telemetry.watch import Watch


@dataclass(slots=True, eq=False)
class BodyStream:
    """The body of an answer that is sent as it comes. ``room`` is called when the client can take more.

    Parts may be added while ``writable``; others wait here until their turn, as pipelined answers do.
    """

    room: Callable[[], None]
    parts: list[bytes] = field(default_factory=list)
    begun: bool = False
    writable: bool = False
    ended: bool = False


@dataclass(slots=True, eq=False)
class Exchange:
    """A request as it was received (header names in lower case) and what became of it.

    ``rejection`` is set when the request was refused before it was complete. ``gone`` is called, once,
    when the client leaves before the answer. ``service`` is the model that an inference request is for: it stays the
    same when another model takes its place meanwhile. Times are monotonic seconds.
    """

    begun: float
    flush: Callable[[], None]
    method: str = ""
    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    received: float = 0.0
    keep_alive: bool = True
    old_http: bool = False
    rejection: RequestFailure | None = None
    gone: Callable[[], None] | None = None
    answer: Answer | None = None
    service: ModelService | None = None
    stream: BodyStream | None = None
    reserved: int = 0
    """Bytes of the memory budget that the request holds."""
    inflated: int = 0
    """Bytes of the body without its compression, if it had one."""
    remote: str = ""
    watch: Watch | None = None
    """Where it is noted how the request fared, if anybody wants to know."""
    told: bool = False
    """Whether that was noted."""
    sent: int = 0
    """Bytes of a streamed body."""
    tenant_lag: float = 0.0

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def respond(self, answer: Answer) -> None:
        """Answer; a second answer is ignored."""
        if self.answer is None:
            self.answer = answer if self.watch is None else answer.with_headers(self.watch.answer_headers)
            self.gone = None
            self.flush()

    def begin(self, answer: Answer, room: Callable[[], None]) -> BodyStream:
        """Answer with a body that is to come, without that of ``answer``; ``gone`` stays until its end."""
        self.answer = answer if self.watch is None else answer.with_headers(self.watch.answer_headers)
        self.stream = BodyStream(room)
        self.flush()
        return self.stream

    def send(self, *parts: bytes, end: bool = False) -> None:
        """Send more of a body that was begun; with ``end`` it is complete."""
        assert self.stream is not None
        self.stream.parts += parts
        if self.watch is not None:
            self.sent += sum(len(part) for part in parts)
        if end:
            self.stream.ended = True
            self.gone = None
        self.flush()

    def written(self) -> None:
        """The answer has been handed to the system."""
        if self.watch is not None and self.answer is not None:
            self._tell(self.watch, self.answer.status)

    def abandoned(self) -> None:
        """The connection ended before the answer had."""
        if self.watch is not None:
            self._tell(self.watch, CLIENT_GONE)

    def _tell(self, watch: Watch, status: int) -> None:
        if self.told:
            return
        self.told = True
        size = 0 if self.answer is None or self.method == "HEAD" else self.answer.size
        watch.finish(watch, int(status), size + self.sent, "")


_STATUS_LINES = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

_TRANSFER = {False: "Transfer-Encoding: chunked\r\n", True: ""}
"""By whether the client speaks HTTP/1.0: then the body ends with the connection."""


def render_parts(exchange: Exchange) -> list[bytes]:
    """The bytes of what has come of a streamed body; those of its end, too, if it has ended."""
    stream = exchange.stream
    assert stream is not None
    parts, stream.parts = [part for part in stream.parts if part], []
    if exchange.old_http:
        return parts
    lines = [piece for part in parts for piece in (b"%x\r\n" % len(part), part, b"\r\n")]
    return [*lines, b"0\r\n\r\n"] if stream.ended else lines


def render(exchange: Exchange, answer: Answer, close: bool) -> list[bytes | memoryview]:
    """The bytes of an answer: head first, then the parts of the body (none for HEAD)."""
    lines = [
        _STATUS_LINES[answer.status],
        f"Content-Length: {answer.size}\r\n" if exchange.stream is None else _TRANSFER[exchange.old_http],
        f"Content-Type: {answer.content_type}\r\n" if answer.body or exchange.stream is not None else "",
        *(f"{name}: {value}\r\n" for name, value in answer.headers),
    ]
    if close:
        lines.append("Connection: close\r\n")
    elif exchange.old_http:
        lines.append("Connection: keep-alive\r\n")
    lines.append("\r\n")
    head = "".join(lines).encode("latin-1")
    if exchange.method == "HEAD" or not answer.body:
        return [head]
    return [head, *answer.body]
