"""gzip and deflate bodies, with a bound on what a small body may grow to."""

from __future__ import annotations

import zlib
from http import HTTPStatus

from slipway_runtime.protocol.answer import Answer
from slipway_runtime.protocol.failures import RequestFailure, invalid, too_large

_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
# Above this, (de)compression takes milliseconds and belongs in a thread.
LARGE = 64 * 1024


def inflate(body: bytes | bytearray | memoryview, encoding: str, limit: int) -> bytearray:
    """The decompressed body. Raises RequestFailure: 415 unknown encoding, 413 over ``limit`` bytes, 400 broken."""
    window = _WINDOWS.get(encoding.strip().lower())
    if window is None:
        raise RequestFailure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unknown Content-Encoding, use gzip or deflate")
    stream = zlib.decompressobj(window)
    try:
        inflated = bytearray(stream.decompress(body, limit + 1))
    except zlib.error as error:
        raise invalid("the compressed body is damaged") from error
    if len(inflated) > limit:
        raise too_large(f"the decompressed body is larger than {limit} bytes")
    if not stream.eof or stream.unused_data:
        raise invalid("the compressed body is cut off or followed by other data")
    return inflated


def wanted_encoding(accept: str) -> str | None:
    """The encoding for an answer: only where the client names exactly one.

    Libraries list everything they can decode by default; tensors compress badly, so such a list is
    taken as permission and not as a wish. A client that asks for ``gzip`` alone means it.
    """
    name = accept.strip().lower()
    return name if name in ("gzip", "deflate") else None


def deflate(answer: Answer, encoding: str) -> Answer:
    """The same answer, compressed, with its Content-Encoding header."""
    stream = zlib.compressobj(level=1, wbits=_WINDOWS[encoding])
    body = b"".join([*(stream.compress(part) for part in answer.body), stream.flush()])
    headers = (*answer.headers, ("Content-Encoding", encoding), ("Vary", "Accept-Encoding"))
    return Answer(answer.status, (body,), answer.content_type, headers)
