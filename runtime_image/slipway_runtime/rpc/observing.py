"""Watching gRPC calls for the access log and the traces."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import grpc

from slipway_runtime.metrics.recorder import CLIENT_GONE
from slipway_runtime.rpc.service import CODES
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.watch import CURRENT, Watch

_STATUSES = {code: int(status) for status, code in CODES.items()} | {grpc.StatusCode.OK: int(HTTPStatus.OK)}

UnaryCall = Callable[[bytes, Any], Awaitable[bytes]]
StreamCall = Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]

_MAPPED = re.compile(r"^\[::ffff:([0-9.]+)\]")
"""A client of IPv4 at a socket of both kinds."""


class ObservingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Watches every call of a server. A call runs in a task of its own, so the watch is in the task's context."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """The handler of a method, watched."""
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, details))
        return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, details))

    def _unary(self, call: UnaryCall, details: Any) -> UnaryCall:
        async def watched(data: bytes, context: Any) -> bytes:
            watch = self._begin(details, context, len(data))
            sent, gone = 0, False
            try:
                response = await call(data, context)
                _tell(watch, context)
                sent = len(response)
                return response
            except asyncio.CancelledError:
                gone = True
                raise
            finally:
                _finish(watch, context, sent, gone=gone)

        return watched

    def _stream(self, call: StreamCall, details: Any) -> StreamCall:
        async def watched(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            watch = self._begin(details, context, 0)
            sent, gone = 0, False

            async def counted() -> AsyncIterator[bytes]:
                async for data in requests:
                    watch.received += len(data)
                    yield data

            try:
                async for response in call(counted(), context):
                    sent += len(response)
                    yield response
                _tell(watch, context)
            except (asyncio.CancelledError, GeneratorExit):
                gone = True
                raise
            finally:
                _finish(watch, context, sent, gone=gone)

        return watched

    def _begin(self, details: Any, context: Any, received: int) -> Watch:
        metadata = {key: value for key, value in details.invocation_metadata or () if isinstance(value, str)}
        watch = self._observer.begin("grpc", "POST", details.method, metadata, time.monotonic(), received)
        watch.remote = _MAPPED.sub(r"\1", unquote(context.peer()).partition(":")[2])
        # For calls that are aborted; others set theirs again, beside those of the method.
        _tell(watch, context)
        CURRENT.set(watch)
        return watch


def _tell(watch: Watch, context: Any) -> None:
    """Add what the client is told to the trailing metadata."""
    ours = watch.answer_headers
    others = [entry for entry in context.trailing_metadata() or () if entry[0] not in dict(ours)]
    context.set_trailing_metadata((*others, *ours))


def _finish(watch: Watch, context: Any, sent: int, *, gone: bool) -> None:
    code = context.code() or grpc.StatusCode.OK
    if gone:
        watch.finish(watch, CLIENT_GONE, sent, grpc.StatusCode.CANCELLED.name)
        return
    status = _STATUSES.get(code, int(HTTPStatus.INTERNAL_SERVER_ERROR))
    watch.finish(watch, status, sent, code.name if isinstance(code, grpc.StatusCode) else str(code))
