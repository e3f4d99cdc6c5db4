"""A client for servers that are not trusted: answers are bounded in size and time, and lead nowhere else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import (
    ClientHandlerType,
    ClientPayloadError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    TCPConnector,
)
from tritonclient.http.aio import InferenceServerClient, InferenceServerClientBase
from tritonclient.utils import InferenceServerException

__all__ = ["LARGE_AT_ONCE", "MAX_ANSWER_BYTES", "MAX_JSON_BYTES", "BoundedClient", "RefusedAnswerError"]

MAX_ANSWER_BYTES = 8 * 1024 * 1024
MAX_JSON_BYTES = 2 * 1024 * 1024
"""Of an answer, or of its part before raw tensors: it can take twenty times as much memory to read, and takes time."""
LARGE_AT_ONCE = 4
"""Pods of all ModelDeployments together that may have answered at length and are still being checked."""
_SMALL = 256 * 1024
_HEAD_LENGTH = "Inference-Header-Content-Length"
_CHUNK = 65536
_CONNECTIONS = 2


class RefusedAnswerError(ClientPayloadError):
    """The server answers in a way that no sane server does."""


class _BoundedResponse(ClientResponse):
    """An answer that is read up to a limit, and never decompressed."""

    take_turn: Callable[[], Awaitable[None]]
    """Waits until there may be one more large answer."""

    async def read(self) -> bytes:
        """The body; raises RefusedAnswerError where it is too large or compressed, which nobody asked for."""
        if self._body is None:
            if self.headers.get("Content-Encoding", "identity") != "identity":
                self.close()
                raise RefusedAnswerError("the answer is compressed although that was not asked for")
            self._body = await self._bounded()
        return self._body

    async def _bounded(self) -> bytes:
        body = bytearray()
        limit = self._limit()
        async for chunk in self.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > limit:
                self.close()
                raise RefusedAnswerError(f"the answer exceeds {limit} bytes")
            if len(body) > _SMALL:
                await self.take_turn()
        self.release()
        return bytes(body)

    def _limit(self) -> int:
        """Bytes that the answer may have; raises RefusedAnswerError for a head of JSON that is too long."""
        head = self.headers.get(_HEAD_LENGTH)
        if head is None:
            return MAX_JSON_BYTES
        if int(head) > MAX_JSON_BYTES:
            self.close()
            raise RefusedAnswerError(f"the answer's JSON exceeds {MAX_JSON_BYTES} bytes")
        return MAX_ANSWER_BYTES


class BoundedClient(InferenceServerClient):  # type: ignore[misc]
    """tritonclient's HTTP client on a session with limits.

    Its own constructor would build the session, and offers no choice in that; the attributes set here are those that
    its methods use.
    """

    def __init__(self, address: str, timeout: float, host: str = "", large: asyncio.Semaphore | None = None) -> None:
        """``address`` is host:port, ``timeout`` the longest time of one request in seconds.

        ``host`` is what the server is asked for by; without it, its address. ``large`` is what clients share that read
        large answers; one that has read such an answer is counted until it is closed.
        """
        InferenceServerClientBase.__init__(self)
        self._url = f"http://{address}"
        self._verbose = False
        self._conn = TCPConnector(limit=_CONNECTIONS, force_close=True)
        self._stub = ClientSession(
            connector=self._conn,
            timeout=ClientTimeout(total=timeout),
            auto_decompress=False,
            # Without a word, aiohttp would ask for compression; Triton then compresses.
            headers={"Accept-Encoding": "identity", **({"Host": host} if host else {})},
            response_class=_BoundedResponse,
            middlewares=(self._keep_hold,),
        )
        self._answers: list[ClientResponse] = []
        self._large = large or asyncio.Semaphore(1)
        self._has_turn = False

    async def close(self) -> None:
        """End every exchange, those too whose answer was not read to its end."""
        for answer in self._answers:
            answer.close()
        if self._has_turn:
            self._has_turn = False
            self._large.release()
        await super().close()

    async def json_of(self, path: str, headers: dict[str, str]) -> Any:
        """The JSON document at a path that is not of the protocol.

        Raises InferenceServerException as the methods of the protocol do, and ValueError for what is no JSON.
        """
        answer = await self._stub.get(f"{self._url}/{path}", headers=headers)
        if answer.status != 200:
            raise InferenceServerException(f"GET /{path} is refused", status=str(answer.status))
        return json.loads(await answer.read())

    async def _keep_hold(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Remember the answer; refuse redirects: a pod must not lead the operator to other addresses."""
        answer = await handler(request)
        assert isinstance(answer, _BoundedResponse)
        answer.take_turn = self._take_turn
        self._answers = [*(earlier for earlier in self._answers if not earlier.closed), answer]
        if 300 <= answer.status < 400:
            raise RefusedAnswerError("the server redirects")
        return answer

    async def _take_turn(self) -> None:
        if not self._has_turn:
            await self._large.acquire()
            self._has_turn = True
