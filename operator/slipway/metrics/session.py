"""HTTP to a server that is not trusted with the operator's time and memory: bounded answers that lead nowhere else."""

import json
import re
import socket
import threading
import time
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import DecodeError, HTTPError

from slipway.metrics.credentials import Credentials

__all__ = ["MAX_ANSWER_BYTES", "BoundedSession"]

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The scrapes of some 2,500 model servers. Reading them takes about six times as much memory."""
_CHUNK = 256 * 1024
_END = 64 * 1024
_WARNINGS = re.compile(r'"warnings"\s*:\s*(?=\[)')
_ABOUT_THE_QUERY = "PromQL "
"""How Prometheus begins what it thinks of an expression, which says nothing of missing data."""
_LONGEST_CAVEAT = 200


class BoundedSession(requests.Session):
    """A session whose answers have so many bytes, decompressed, and are complete within so many seconds.

    Redirects are not followed: they could lead to any address that the operator can reach, with its credentials. One
    thread at a time may use a session.
    """

    def __init__(
        self, seconds: float, max_bytes: int = MAX_ANSWER_BYTES, credentials: Credentials | None = None
    ) -> None:
        super().__init__()
        self._credentials = credentials or Credentials()
        self._seconds = seconds
        self._max_bytes = max_bytes
        self.caveat = ""
        """Why the last answer may be less than the whole truth; empty where nothing was said."""
        self._open: WeakSet[HTTPConnection] = WeakSet()
        self._adapter = _WatchedAdapter(self._open)

    def get_adapter(self, url: str | bytes) -> HTTPAdapter:
        """The adapter that knows its open connections, whatever else has been mounted."""
        return self._adapter

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._adapter.close()

    def send(self, request: requests.PreparedRequest, **given: Any) -> requests.Response:
        """The whole answer. Raises requests.RequestException, of which Timeout and ContentDecodingError are some."""
        self._credentials.sign(request)
        if self._credentials.ca_file:
            given["verify"] = self._credentials.ca_file
        late = threading.Event()
        watch = threading.Timer(self._seconds, self._cut, [late])
        watch.daemon = True
        watch.start()
        try:
            response = super().send(request, **{**given, "stream": True, "allow_redirects": False})
            try:
                body = self._body(response)
                self.caveat = _caveat_of(body)
                response._content = body
                response._content_consumed = True  # type: ignore[attr-defined]
            finally:
                response.close()
        except (requests.RequestException, HTTPError, OSError) as error:
            if late.is_set():
                raise requests.Timeout(f"no whole answer within {self._seconds:g}s") from error
            raise error if isinstance(error, requests.RequestException) else _named(error) from error
        finally:
            watch.cancel()
        return response

    def _body(self, response: requests.Response) -> bytes:
        body = bytearray()
        deadline = time.monotonic() + self._seconds
        # One read of the socket at a time: a server that drips is not waited for until a block is full.
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            body += chunk
            if len(body) > self._max_bytes:
                raise requests.exceptions.ContentDecodingError(f"the answer has more than {self._max_bytes} bytes")
            if time.monotonic() > deadline:
                raise requests.Timeout(f"no whole answer within {self._seconds:g}s")
        return bytes(body)

    def _cut(self, late: threading.Event) -> None:
        """End what is under way: a read that waits for one more byte has no other end."""
        late.set()
        for connection in list(self._open):
            if connection.sock is not None:
                with suppress(OSError):
                    # Not that of TLS, which would put in order what another thread is using.
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)


def _caveat_of(body: bytes) -> str:
    """What is said beside the data: Thanos answers without the stores that it cannot reach and warns of it at the end,
    VictoriaMetrics says at the beginning that its answer is partial."""
    if b'"isPartial":true' in body[:_LONGEST_CAVEAT]:
        return "the answer is partial"
    # Quotation marks within labels are escaped, so that a key can only be a key; of labels none holds a list.
    end = body[-_END:].decode(errors="replace")
    for found in _WARNINGS.finditer(end):
        with suppress(ValueError):
            warnings, _ = json.JSONDecoder().raw_decode(end, found.end())
            lacking = [text for text in map(str, warnings) if not text.startswith(_ABOUT_THE_QUERY)]
            if lacking:
                return lacking[0][:_LONGEST_CAVEAT]
    return ""


class _WatchedAdapter(HTTPAdapter):
    """Knows the connections that it has opened."""

    def __init__(self, opened: WeakSet[HTTPConnection]) -> None:
        self._classes = _pool_classes(opened)
        super().__init__(max_retries=0)

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        """As in the class above, with connections that are known."""
        super().init_poolmanager(*given, **named)
        self._watch(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        """As in the class above, with connections that are known."""
        manager = super().proxy_manager_for(proxy, **named)
        self._watch(manager)
        return manager

    def _watch(self, manager: PoolManager) -> None:
        manager.pool_classes_by_scheme = self._classes


def _pool_classes(opened: WeakSet[HTTPConnection]) -> dict[str, type[HTTPConnectionPool]]:
    class Known(HTTPConnection):
        def connect(self) -> None:
            opened.add(self)
            super().connect()

    class KnownSecure(HTTPSConnection):
        def connect(self) -> None:
            opened.add(self)
            super().connect()

    class Pool(HTTPConnectionPool):
        ConnectionCls = Known

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = KnownSecure

    return {"http": Pool, "https": SecurePool}


def _named(error: Exception) -> requests.RequestException:
    """The error of a body that is read here, as the library names those of bodies that it reads itself."""
    if isinstance(error, DecodeError):
        return requests.exceptions.ContentDecodingError(error)
    return requests.ConnectionError(error)
