"""A client's connection: parsing with httptools, answers in order, bounds on everything."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from slipway_runtime.http.exchange import Exchange, render, render_parts
from slipway_runtime.http.refusing import check_framing, headers_too_large
from slipway_runtime.protocol.failures import RequestFailure, invalid, too_large
from slipway_runtime.serving.budget import ByteBudget

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_VERSIONS = ("1.1", "1.0")
# The most that the event loop reads at once.
_READ_SIZE = 256 * 1024
_SHORT_NAME, _MOST_KEYS = 64, 1024
_KEYS: dict[bytes, str] = {}


@dataclass(frozen=True)
class Bounds:
    """What a client may ask of a connection. Times in seconds.

    The idle time is longer than the hour after which Envoy drops idle upstream connections: a proxy must
    never send a request down a connection that the server is closing.
    """

    max_body: int
    max_target: int = 8 * 1024
    max_headers: int = 128
    max_header_bytes: int = 64 * 1024
    max_chunks: int = 65_536
    max_pipelined: int = 64
    max_connections: int = 0
    """At once; 0: as many as the system lets this process open."""
    max_requests: int = 0
    """On one connection, before the client has to open another; 0: no limit."""
    head_time: float = 10.0
    body_stall: float = 30.0
    body_time: float = 300.0
    write_stall: float = 60.0
    idle_time: float = 3_660.0
    linger: float = 1.0
    memory: ByteBudget = field(default_factory=lambda: ByteBudget(0))
    """What the bodies on all connections share."""


def _key_of(name: bytes) -> str:
    """A header's name as it is looked up; the first short ones are remembered, clients send few different ones."""
    key = name.decode("latin-1").lower()
    if len(_KEYS) < _MOST_KEYS and len(name) <= _SHORT_NAME:
        _KEYS[name] = key
    return key


class Handler(Protocol):
    """Where complete (or rejected) requests go."""

    def handle(self, exchange: Exchange) -> None:
        """Answer, now or later, through ``exchange.respond``."""


class Connection(asyncio.Protocol):
    """Parses requests, keeps answers in the order of requests, notices clients that leave or dawdle."""

    def __init__(self, handler: Handler, bounds: Bounds, registry: set[Connection]) -> None:
        """``registry`` holds all open connections of the server."""
        self._handler = handler
        self._bounds = bounds
        self._registry = registry
        self._counted = bounds.memory.limit > 0
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[Exchange] = deque()
        self._incoming: Exchange | None = None
        self._target = b""
        self._header_bytes = 0
        self._chunks = 0
        self._requests = 0
        self._progress = (0, 0, 0)
        self._unparsed = 0
        self._remote = ""
        self._active = time.monotonic()
        self._blocked_since: float | None = None
        self._close_at: float | None = None
        self._deaf = False
        self._paused = False
        self.closing = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        # uvloop's transports are no subclasses of asyncio's, they only behave alike.
        self._transport = cast(asyncio.Transport, transport)
        self._remote = _text_of(transport.get_extra_info("peername"))
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: whoever still works for it is told."""
        self._registry.discard(self)
        self._transport = None
        if self._incoming is not None:
            self._release(self._incoming)
        for exchange in self._pending:
            self._release(exchange)
            gone, exchange.gone = exchange.gone, None
            if gone is not None:
                gone()
            exchange.abandoned()
        self._pending.clear()

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self._active = time.monotonic()
        if self._deaf:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # The request itself was delivered; another protocol is not offered, so nothing may follow.
            self._deaf = True
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, RequestFailure):
                raise
            self._reject(cause)
        except httptools.HttpParserError:
            self._reject(invalid("the request is not valid HTTP"))
        else:
            if self._incoming is not None:
                self._account(self._incoming, len(data))

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self._blocked_since = time.monotonic()
        if self._pending and (stream := self._pending[0].stream) is not None:
            stream.writable = False
        self._set_reading()

    def resume_writing(self) -> None:
        """The client caught up."""
        self._blocked_since = None
        self._set_reading()
        if self._pending and (stream := self._pending[0].stream) is not None and stream.begun:
            stream.writable = True
            stream.room()

    # httptools' side

    def on_message_begin(self) -> None:
        """First byte of a request."""
        self._incoming = Exchange(time.monotonic(), self._flush)
        self._target = b""
        self._header_bytes = 0
        self._chunks = 0

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._target += url
        if len(self._target) > self._bounds.max_target:
            raise RequestFailure(HTTPStatus.REQUEST_URI_TOO_LONG, "the URL is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        exchange = self._current()
        headers, bounds = exchange.headers, self._bounds
        self._header_bytes += len(name) + len(value)
        if len(headers) >= bounds.max_headers or self._header_bytes > bounds.max_header_bytes:
            raise headers_too_large()
        if exchange.method:
            return  # trailers come after all decisions that headers take part in
        key = _KEYS.get(name) or _key_of(name)
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """The head is complete; a body may follow."""
        exchange = self._current()
        version = self._parser.get_http_version()
        exchange.method = self._parser.get_method().decode("latin-1")
        exchange.target = self._target.decode("latin-1")
        exchange.old_http = version == "1.0"
        if "transfer-encoding" in exchange.headers or "," in exchange.headers.get("host", ""):
            check_framing(exchange)
        if version not in _VERSIONS:
            raise RequestFailure(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "this version of HTTP is not supported")
        length = exchange.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._bounds.max_body:
            raise too_large(f"the body is larger than {self._bounds.max_body} bytes")
        if self._counted and length.isdigit():
            self._reserve(exchange, int(length))
        expected = exchange.headers.get("expect")
        if expected is not None and expected.lower() == "100-continue" and self._transport and not self._pending:
            self._transport.write(_CONTINUE)

    def on_chunk_header(self) -> None:
        """A chunk of a chunked body begins."""
        self._chunks += 1
        if self._chunks > self._bounds.max_chunks:
            raise too_large("the body comes in too many chunks")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        exchange = self._current()
        exchange.body += body
        if len(exchange.body) > self._bounds.max_body:
            raise too_large(f"the body is larger than {self._bounds.max_body} bytes")
        if self._counted and len(exchange.body) > exchange.reserved:
            self._reserve(exchange, len(exchange.body))

    def on_message_complete(self) -> None:
        """A request is complete."""
        exchange = self._current()
        self._incoming = None
        # What follows a request to upgrade may be of the other protocol: nothing more is read as HTTP.
        exchange.keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._requests += 1
        if self._requests == self._bounds.max_requests:
            exchange.keep_alive = False
        self._deliver(exchange)
        if not exchange.keep_alive:
            self._deaf = True

    # ours

    @property
    def idle(self) -> bool:
        """Whether no request is being received or answered."""
        return self._incoming is None and not self._pending

    def close(self) -> None:
        """Close now, whatever is going on."""
        if self._transport is not None:
            self._transport.close()

    def sweep(self, now: float) -> None:
        """Called about once a second: part with clients that dawdle."""
        bounds, incoming = self._bounds, self._incoming
        if self._close_at is not None:
            expired = now >= self._close_at
        elif self._blocked_since is not None:
            expired = now - self._blocked_since > bounds.write_stall
        elif incoming is not None:
            limit = bounds.body_time if incoming.method else bounds.head_time
            stalled = now - self._active > bounds.body_stall
            expired = now - incoming.begun > limit or stalled
        else:
            expired = not self._pending and now - self._active > bounds.idle_time
        if not expired or self._transport is None:
            return
        if self._blocked_since is not None:
            self._transport.abort()
        elif incoming is not None and self._close_at is None:
            self._reject(RequestFailure(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time"))
        else:
            self._transport.close()

    @property
    def idle_since(self) -> float:
        """When something last happened, in monotonic seconds."""
        return self._active

    def _account(self, exchange: Exchange, size: int) -> None:
        """Bytes that bring neither a header nor a chunk nor a body are kept by the parser: bound them as well."""
        progress = len(exchange.headers), len(exchange.body), self._chunks
        self._unparsed = size + (self._unparsed if progress == self._progress else 0)
        self._progress = progress
        if self._unparsed > self._bounds.max_target + self._bounds.max_header_bytes + _READ_SIZE:
            self._reject(headers_too_large())

    def _reserve(self, exchange: Exchange, size: int) -> None:
        self._bounds.memory.reserve(size, exchange.reserved)
        exchange.reserved = size

    def _release(self, exchange: Exchange) -> None:
        if exchange.reserved:
            self._bounds.memory.release(exchange.reserved)
            exchange.reserved = 0

    def _current(self) -> Exchange:
        assert self._incoming is not None
        return self._incoming

    def _reject(self, failure: RequestFailure) -> None:
        exchange = self._incoming or Exchange(time.monotonic(), self._flush)
        self._incoming = None
        exchange.target = exchange.target or self._target.decode("latin-1")
        exchange.rejection = failure
        exchange.keep_alive = False
        self._deaf = True
        self._deliver(exchange)

    def _deliver(self, exchange: Exchange) -> None:
        exchange.received = time.monotonic()
        exchange.remote = self._remote
        self._pending.append(exchange)
        self._set_reading()
        self._handler.handle(exchange)

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        wanted = len(self._pending) < self._bounds.max_pipelined and self._blocked_since is None
        if wanted and self._paused:
            self._transport.resume_reading()
        elif not wanted and not self._paused:
            self._transport.pause_reading()
        self._paused = not wanted

    def _flush(self) -> None:
        while self._pending and self._transport is not None:
            answer = self._pending[0].answer
            if answer is None:
                break
            exchange = self._pending[0]
            if exchange.stream is not None and not self._flush_stream(exchange):
                break
            self._pending.popleft()
            self._release(exchange)
            # In a drain the last of several pipelined answers closes, so that none is lost.
            close = not exchange.keep_alive or (self.closing and self.idle)
            if exchange.stream is None:
                self._transport.writelines(render(exchange, answer, close))
            elif exchange.old_http:
                close = True
            self._active = time.monotonic()
            exchange.written()
            if close:
                self._finish(exchange)
                return
        self._set_reading()

    def _flush_stream(self, exchange: Exchange) -> bool:
        """Send what there is of a streamed body; whether that was all."""
        stream, answer = exchange.stream, exchange.answer
        assert self._transport is not None and stream is not None and answer is not None
        begins, stream.begun = not stream.begun, True
        if begins:
            stream.writable = self._blocked_since is None
            self._transport.writelines(render(exchange, answer, close=not exchange.keep_alive or exchange.old_http))
        if stream.parts or stream.ended:
            self._transport.writelines(render_parts(exchange))
            self._active = time.monotonic()
        if begins and stream.writable and not stream.ended:
            self._loop.call_soon(stream.room)
        return stream.ended

    def _finish(self, exchange: Exchange) -> None:
        """Close after the last answer.

        A rejected client may still be sending: closing at once would reset the connection and take the
        answer with it. So say that we are done, and read on for a moment.
        """
        assert self._transport is not None
        self._deaf = True
        if exchange.rejection is not None and self._transport.can_write_eof():
            self._transport.write_eof()
            self._close_at = time.monotonic() + self._bounds.linger
        else:
            self._transport.close()


def _text_of(address: object) -> str:
    """``host:port`` of a peer; empty where there is none."""
    if not isinstance(address, tuple):
        return ""
    # A client of IPv4 at a socket of both kinds.
    host, port = str(address[0]).removeprefix("::ffff:"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
