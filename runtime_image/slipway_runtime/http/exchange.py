"""One HTTP request and its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from slipway_runtime.protocol.answer import Answer
from slipway_runtime.protocol.failures import RequestFailure


@dataclass(slots=True, eq=False)
class Exchange:
    """A request as it was received (header names in lower case) and what became of it.

    ``rejection`` is set when the request was refused before it was complete. ``gone`` is called, once,
    when the client leaves before the answer. Times are monotonic seconds.
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

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    def respond(self, answer: Answer) -> None:
        """Answer; a second answer is ignored."""
        if self.answer is None:
            self.answer = answer
            self.gone = None
            self.flush()


_STATUS_LINES = {status: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


def render(exchange: Exchange, answer: Answer, close: bool) -> list[bytes | memoryview]:
    """The bytes of an answer: head first, then the parts of the body (none for HEAD)."""
    lines = [
        _STATUS_LINES[answer.status],
        f"Content-Length: {answer.size}\r\n",
        f"Content-Type: {answer.content_type}\r\n" if answer.body else "",
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
