"""A client's connection: parsing with httptools, answers in order, bounds on everything."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from slipway_runtime.http.exchange import Exchange, render
from slipway_runtime.protocol.failures import RequestFailure, invalid, too_large

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


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
    head_time: float = 10.0
    body_stall: float = 30.0
    body_time: float = 300.0
    write_stall: float = 60.0
    idle_time: float = 3_660.0
    linger: float = 1.0


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
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._pending: deque[Exchange] = deque()
        self._incoming: Exchange | None = None
        self._target = b""
        self._header_bytes = 0
        self._chunks = 0
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
        self._registry.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: whoever still works for it is told."""
        self._registry.discard(self)
        self._transport = None
        for exchange in self._pending:
            gone, exchange.gone = exchange.gone, None
            if gone is not None:
                gone()
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

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self._blocked_since = time.monotonic()
        self._set_reading()

    def resume_writing(self) -> None:
        """The client caught up."""
        self._blocked_since = None
        self._set_reading()

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
        self._header_bytes += len(name) + len(value)
        too_many = len(exchange.headers) >= self._bounds.max_headers
        if too_many or self._header_bytes > self._bounds.max_header_bytes:
            raise RequestFailure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many or too large headers")
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        earlier = exchange.headers.get(key)
        exchange.headers[key] = text if earlier is None else f"{earlier}, {text}"

    def on_headers_complete(self) -> None:
        """The head is complete; a body may follow."""
        exchange = self._current()
        exchange.method = self._parser.get_method().decode("latin-1")
        exchange.target = self._target.decode("latin-1")
        exchange.old_http = self._parser.get_http_version() == "1.0"
        length = exchange.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._bounds.max_body:
            raise too_large(f"the body is larger than {self._bounds.max_body} bytes")
        if exchange.headers.get("expect", "").lower() == "100-continue" and self._transport and not self._pending:
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

    def on_message_complete(self) -> None:
        """A request is complete."""
        exchange = self._current()
        self._incoming = None
        # What follows a request to upgrade may be of the other protocol: nothing more is read as HTTP.
        exchange.keep_alive = self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._deliver(exchange)

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
        if expired and self._transport is not None:
            self._transport.abort() if self._blocked_since is not None else self._transport.close()

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
            exchange = self._pending.popleft()
            # In a drain the last of several pipelined answers closes, so that none is lost.
            close = not exchange.keep_alive or (self.closing and self.idle)
            self._transport.writelines(render(exchange, answer, close))
            self._active = time.monotonic()
            if close:
                self._finish(exchange)
                return
        self._set_reading()

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
