"""A client for servers that are not trusted: answers are bounded in size and time, and lead nowhere else."""

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

__all__ = ["MAX_ANSWER_BYTES", "BoundedClient"]

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK = 65536
_CONNECTIONS = 2


class _BoundedResponse(ClientResponse):
    """An answer that is read up to a limit, and never decompressed."""

    async def read(self) -> bytes:
        """The body; raises ClientPayloadError where it is too large or compressed, which nobody asked for."""
        if self._body is None:
            if self.headers.get("Content-Encoding", "identity") != "identity":
                self.close()
                raise ClientPayloadError("the answer is compressed although that was not asked for")
            self._body = await self._bounded()
        return self._body

    async def _bounded(self) -> bytes:
        body = bytearray()
        async for chunk in self.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                self.close()
                raise ClientPayloadError(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
        self.release()
        return bytes(body)


async def _stay(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Refuse redirects: a pod must not lead the operator to other addresses."""
    response = await handler(request)
    if 300 <= response.status < 400:
        response.close()
        raise ClientPayloadError("the server redirects")
    return response


class BoundedClient(InferenceServerClient):  # type: ignore[misc]
    """tritonclient's HTTP client on a session with limits.

    Its own constructor would build the session, and offers no choice in that; the attributes set here are those that
    its methods use.
    """

    def __init__(self, address: str, timeout: float) -> None:
        """``address`` is host:port, ``timeout`` the longest time of one request in seconds."""
        InferenceServerClientBase.__init__(self)
        self._url = f"http://{address}"
        self._verbose = False
        self._conn = TCPConnector(limit=_CONNECTIONS, force_close=True)
        self._stub = ClientSession(
            connector=self._conn,
            timeout=ClientTimeout(total=timeout),
            auto_decompress=False,
            response_class=_BoundedResponse,
            middlewares=(_stay,),
        )
