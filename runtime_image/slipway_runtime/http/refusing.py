"""What is refused before a request is looked at: connections of which there are too many, and ambiguous framing."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import cast

from slipway_runtime.http.exchange import Exchange, render
from slipway_runtime.protocol.answer import failure_answer
from slipway_runtime.protocol.failures import RequestFailure, invalid


class Refusing(asyncio.Protocol):
    """A connection of which there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so, and close."""
        answer = failure_answer(RequestFailure(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections", retry_after=1))
        stream = cast(asyncio.Transport, transport)
        stream.writelines(render(Exchange(time.monotonic(), _nothing), answer, close=True))
        stream.close()


def _nothing() -> None:
    """What is done when an answer that was sent already is there."""


def headers_too_large() -> RequestFailure:
    """431."""
    return RequestFailure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too many or too large headers")


def check_framing(exchange: Exchange) -> None:
    """What the parser lets pass although a proxy before us may read it in another way. Raises RequestFailure."""
    if "," in exchange.headers.get("host", ""):
        raise invalid("more than one Host")
    encoding = exchange.headers.get("transfer-encoding", "chunked")
    if exchange.old_http:
        raise invalid("HTTP/1.0 has no Transfer-Encoding")
    if encoding.strip().lower() != "chunked":
        raise RequestFailure(HTTPStatus.NOT_IMPLEMENTED, "the only Transfer-Encoding is chunked")
