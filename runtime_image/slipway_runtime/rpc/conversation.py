"""One call of ``ModelStreamInfer``: many requests, and the responses to them as they come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from slipway_runtime import journal
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.requests import request_id
from slipway_runtime.rpc.responses import stream_answer, stream_failure
from slipway_runtime.serving.service import ModelService

# Requests of one call that are worked on at once; further ones wait in the client.
_DEPTH = 64
# Responses that wait for the client to read; when there are more, nothing more is made.
_UNREAD = 16


class Conversation:
    """Answers of one part come in the order of their requests; parts of others as soon as they are there.

    What fails is told under the id of its request, and ends nothing else.
    """

    def __init__(self, inference: RpcInference, metadata: Mapping[str, str], remaining: float | None) -> None:
        """``remaining`` are the seconds until the client gives up the whole call."""
        self._inference = inference
        self._metadata = metadata
        self._deadline = None if remaining is None else time.monotonic() + remaining
        self._ordered: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(_DEPTH)
        self._ready: asyncio.Queue[bytes | None] = asyncio.Queue(_UNREAD)
        self._slots = asyncio.Semaphore(_DEPTH)
        self._tasks: set[asyncio.Task[bytes] | asyncio.Task[None]] = set()

    async def responses(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """``ModelStreamInferResponse`` messages until all requests are answered."""
        background = [asyncio.create_task(self._read(requests)), asyncio.create_task(self._put_in_order())]
        try:
            while (response := await self._ready.get()) is not None:
                yield response
        finally:
            for task in (*background, *self._tasks):
                task.cancel()
            await asyncio.gather(*background, *self._tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for data in requests:
                await self._take(data)
        except Exception as error:
            # The client's side of the call broke: what it asked before is answered if it still can be.
            journal.record("stream-broken", "warning", cause=f"{type(error).__name__}: {error}")
        await self._ordered.put(None)

    async def _take(self, data: bytes) -> None:
        if self._comes_in_parts(data):
            await self._slots.acquire()
            self._track(asyncio.create_task(self._answer_in_parts(data)))
        else:
            task = asyncio.create_task(self._answer(data))
            self._track(task)
            await self._ordered.put(task)

    async def _put_in_order(self) -> None:
        while (task := await self._ordered.get()) is not None:
            await self._ready.put(await task)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ready.put(None)

    def _track(self, task: asyncio.Task[bytes] | asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _comes_in_parts(self, data: bytes) -> bool:
        try:
            return self._inference.comes_in_parts(data)
        except RequestFailure:
            return False  # which is told where the request is answered

    async def _answer(self, data: bytes) -> bytes:
        service: ModelService | None = None
        try:
            service = self._inference.target(data, self._metadata)
            return stream_answer(await self._inference.infer(service, data, self._metadata, self._remaining()))
        except RequestFailure as failure:
            return _told(service, data, failure)

    async def _answer_in_parts(self, data: bytes) -> None:
        service: ModelService | None = None
        try:
            service = self._inference.target(data, self._metadata)
            parts = self._inference.parts(service, data, self._metadata, self._remaining())
            async with contextlib.aclosing(parts):
                async for part in parts:
                    await self._ready.put(stream_answer(part))
        except RequestFailure as failure:
            await self._ready.put(_told(service, data, failure))
        finally:
            self._slots.release()

    def _remaining(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()


def _told(service: ModelService | None, data: bytes, failure: RequestFailure) -> bytes:
    name, version = ("", "") if service is None else (service.name, service.version)
    return stream_failure(name, version, request_id(data), failure.text)
