"""``ModelInfer`` and ``ModelStreamInfer``: from bytes to the batcher and back, counted exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus

from slipway_runtime import journal
from slipway_runtime.metrics.recorder import CLIENT_GONE
from slipway_runtime.protocol.failures import RequestFailure, not_found
from slipway_runtime.protocol.request import check_against
from slipway_runtime.rpc.requests import RpcRequest, decode_infer, request_id
from slipway_runtime.rpc.responses import encode_infer, stream_answer, stream_failure
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import ModelService
from slipway_runtime.shadow.candidate import SHADOW_HEADER
from slipway_runtime.shadow.repeater import Repeater
from slipway_runtime.tensors.tensor import Tensor

# Requests of one stream that are worked on at once; further ones wait in the client.
_STREAM_DEPTH = 64
_REQUEST_ID = "x-request-id"


class RpcInference:
    """Answers inference requests. One instance per server."""

    def __init__(self, service: ModelService, repeater: Repeater | None = None) -> None:
        """``repeater`` is offered every request that users have had an answer to."""
        self._service = service
        self._repeater = repeater

    async def infer(self, data: bytes, metadata: Mapping[str, str], remaining: float | None) -> bytes:
        """The response to one request; ``remaining`` are the seconds until the client gives up.

        Raises RequestFailure, and CancelledError when the client leaves.
        """
        metrics, statistics = self._service.metrics, self._service.statistics
        begun, code = time.monotonic(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
        shadow = metadata.get(SHADOW_HEADER, "").lower() == "true"
        metrics.in_flight.add()
        try:
            response = await self._answer(data, metadata, remaining, shadow)
            code = int(HTTPStatus.OK)
            return response
        except RequestFailure as failure:
            code = int(failure.status)
            raise
        except asyncio.CancelledError:
            late = remaining is not None and time.monotonic() - begun >= remaining
            code = int(HTTPStatus.GATEWAY_TIMEOUT) if late else CLIENT_GONE
            raise
        except Exception as unexpected:
            journal.record("internal-error", "error", cause=f"{type(unexpected).__name__}: {unexpected}")
            text = "internal error of the server"
            raise RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, text) from unexpected
        finally:
            seconds = time.monotonic() - begun
            metrics.in_flight.add(-1)
            metrics.request_finished(code, shadow, seconds)
            statistics.request_finished(code == HTTPStatus.OK, seconds)

    async def stream(
        self, requests: AsyncIterator[bytes], metadata: Mapping[str, str], remaining: float | None
    ) -> AsyncIterator[bytes]:
        """The responses to a stream, in the order of its requests; what fails is told and ends nothing."""
        waiting: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(_STREAM_DEPTH)
        tasks: set[asyncio.Task[bytes]] = set()

        async def read() -> None:
            async for data in requests:
                task = asyncio.create_task(self._stream_item(data, metadata, remaining))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                await waiting.put(task)
            await waiting.put(None)

        reader = asyncio.create_task(read())
        try:
            while (task := await waiting.get()) is not None:
                yield await task
        finally:
            reader.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(reader, *tasks, return_exceptions=True)

    async def _stream_item(self, data: bytes, metadata: Mapping[str, str], remaining: float | None) -> bytes:
        try:
            return stream_answer(await self.infer(data, metadata, remaining))
        except RequestFailure as failure:
            return stream_failure(self._service.name, self._service.version, request_id(data), failure.text)

    async def _answer(self, data: bytes, metadata: Mapping[str, str], remaining: float | None, shadow: bool) -> bytes:
        service = self._service
        # A server that drains takes no new calls: what comes belongs to a call or a stream that is under way.
        model, batcher = service.serving(begun=0.0)
        read = decode_infer(memoryview(data))
        self._check_name(read)
        check_against(model.signature, read.request)
        if shadow:
            service.admit_shadow(batcher)
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            with contextlib.suppress(asyncio.InvalidStateError):
                answered.set_result(outcome)

        job = batcher.submit(read.request.within(remaining), done)
        try:
            outcome = await answered
        except asyncio.CancelledError:
            batcher.cancel(job)
            raise
        if isinstance(outcome, RequestFailure):
            raise outcome
        response = encode_infer(
            service.name, service.version, read.request, outcome, model.signature, final=read.final_flag
        )
        self._offer(read, outcome, metadata, shadow)
        return response

    def _offer(self, read: RpcRequest, outcome: tuple[Tensor, ...], metadata: Mapping[str, str], shadow: bool) -> None:
        if self._repeater is not None and not shadow:
            self._repeater.offer(
                read.request, outcome, metadata.get(_REQUEST_ID, ""), metadata.get("authorization", "")
            )

    def _check_name(self, read: RpcRequest) -> None:
        service = self._service
        if read.model != service.name:
            raise not_found(f"there is no model '{read.model}' here")
        if read.version not in ("", service.version):
            raise not_found(f"model '{read.model}' has no version '{read.version}' here")
