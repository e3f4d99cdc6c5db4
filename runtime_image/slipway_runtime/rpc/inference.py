"""``ModelInfer`` and ``ModelStreamInfer``: from bytes to the batcher and back, counted exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from http import HTTPStatus

from slipway_runtime import journal
from slipway_runtime.metrics.recorder import CLIENT_GONE
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import check_against
from slipway_runtime.repository.repository import Repository
from slipway_runtime.rpc.requests import RpcRequest, Undecoded, named
from slipway_runtime.rpc.responses import encode_infer, encode_last
from slipway_runtime.serving.budget import ByteBudget, Reservation
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import ModelService
from slipway_runtime.serving.tenants import Tenants
from slipway_runtime.shadow.candidate import SHADOW_HEADER
from slipway_runtime.shadow.repeater import Repeater
from slipway_runtime.telemetry.watch import CURRENT
from slipway_runtime.tensors.tensor import Tensor

_REQUEST_ID = "x-request-id"


class RpcInference:
    """Answers inference requests. One instance per server."""

    def __init__(
        self,
        repository: Repository,
        repeater: Repeater | None = None,
        tenants: Tenants | None = None,
        memory: ByteBudget | None = None,
    ) -> None:
        """``repeater`` is offered every request that users have had an answer to."""
        self._tenants = tenants
        self._memory = memory or ByteBudget(0)
        self._repository = repository
        self._repeater = repeater
        # One at a time: what is read takes several times the memory of the message.
        self._decoding = asyncio.Semaphore(1)

    def target(self, data: bytes, metadata: Mapping[str, str]) -> ModelService:
        """The model that a request is for. Raises RequestFailure (400, 404)."""
        try:
            try:
                return self._repository.find(*named(data))
            except RequestFailure:
                # A damaged message is told so, whatever stands where the name should be.
                Undecoded(memoryview(data))
                raise
        except RequestFailure as failure:
            # With one model there is no doubt whose client is mistaken.
            if (sole := self._repository.sole) is not None:
                sole.request_began(named=False)
                sole.request_ended(int(failure.status), _is_shadow(metadata), 0.0)
            raise

    async def infer(
        self, service: ModelService, data: bytes, metadata: Mapping[str, str], remaining: float | None
    ) -> bytes:
        """The response to one request for ``service``; ``remaining`` are the seconds until the client gives up.

        Raises RequestFailure, and CancelledError when the client leaves.
        """
        begun, code = time.monotonic(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
        shadow = _is_shadow(metadata)
        service.request_began()
        held = Reservation(self._memory)
        try:
            held.grow(len(data))
            response = await self._answer(service, data, metadata, remaining, shadow, held)
            code = int(HTTPStatus.OK)
            return response
        except (Exception, asyncio.CancelledError) as error:
            code, failure = _judged(error, begun, remaining)
            if failure is error:
                raise
            raise failure from error
        finally:
            held.release()
            service.request_ended(code, shadow, time.monotonic() - begun)

    def comes_in_parts(self, data: bytes) -> bool:
        """Whether the model that a request is for answers in parts. Raises RequestFailure (400, 404)."""
        name, version = named(data)
        model = self._repository.find(name, version).model
        return model is not None and model.signature.streams

    async def parts(
        self, service: ModelService, data: bytes, metadata: Mapping[str, str], remaining: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The responses to one request for a model that answers in parts. Raises as ``infer`` does."""
        begun, code = time.monotonic(), CLIENT_GONE
        service.request_began()
        held = Reservation(self._memory)
        try:
            held.grow(len(data))
            async with contextlib.aclosing(self._responses(service, data, metadata, remaining, held)) as responses:
                async for response in responses:
                    yield response
            code = int(HTTPStatus.OK)
        except (Exception, asyncio.CancelledError) as error:
            code, failure = _judged(error, begun, remaining)
            if failure is error:
                raise
            raise failure from error
        finally:
            held.release()
            service.request_ended(code, _is_shadow(metadata), time.monotonic() - begun)

    async def _responses(
        self,
        service: ModelService,
        data: bytes,
        metadata: Mapping[str, str],
        remaining: float | None,
        held: Reservation,
    ) -> AsyncGenerator[bytes, None]:
        model, batcher = service.serving(begun=0.0)
        read = await self._decoded(data, held)
        check_against(model.signature, read.request)
        self._tenant_lag(metadata)
        runner = batcher.streams
        assert runner is not None, "the model was asked whether it answers in parts"
        news = asyncio.Event()
        stream = runner.open(read.request.within(remaining), news.set)
        final = False if read.final_flag else None
        encode = partial(encode_infer, service.name, service.version, read.request)
        try:
            while True:
                while (part := stream.take()) is not None:
                    yield encode(part, model.signature, final=final)
                if stream.finished:
                    break
                news.clear()
                await news.wait()
            if stream.failure is not None:
                raise stream.failure
            if read.final_flag:
                yield encode_last(service.name, service.version, read.request)
        finally:
            stream.cancel()

    async def _decoded(self, data: bytes, held: Reservation) -> RpcRequest:
        """The request in ``data``; one that takes long to read does not hold up the others. Raises RequestFailure."""
        request = Undecoded(memoryview(data))
        if not request.heavy:
            read = request.decode()
        else:
            async with self._decoding:
                read = await asyncio.to_thread(request.decode)
        if read.size:
            held.grow(read.size)
        return read

    def _tenant_lag(self, metadata: Mapping[str, str]) -> float:
        return 0.0 if self._tenants is None else self._tenants.admit(metadata.get(self._tenants.header, ""))

    async def _answer(
        self,
        service: ModelService,
        data: bytes,
        metadata: Mapping[str, str],
        remaining: float | None,
        shadow: bool,
        held: Reservation,
    ) -> bytes:
        # A server that drains takes no new calls: what comes belongs to a call or a stream that is under way.
        model, batcher = service.serving(begun=0.0)
        read = await self._decoded(data, held)
        check_against(model.signature, read.request)
        if shadow:
            service.admit_shadow(batcher)
            batcher = batcher.plain
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            with contextlib.suppress(asyncio.InvalidStateError):
                answered.set_result(outcome)

        job = batcher.submit(read.request.within(remaining), done, self._tenant_lag(metadata))
        try:
            outcome = await answered
        except asyncio.CancelledError:
            batcher.cancel(job)
            raise
        if isinstance(outcome, RequestFailure):
            raise outcome
        final = True if read.final_flag else None
        response = encode_infer(service.name, service.version, read.request, outcome, model.signature, final=final)
        self._offer(read, outcome, metadata, shadow)
        return response

    def _offer(self, read: RpcRequest, outcome: tuple[Tensor, ...], metadata: Mapping[str, str], shadow: bool) -> None:
        if self._repeater is not None and not shadow:
            self._repeater.offer(
                read.request,
                outcome,
                metadata.get(_REQUEST_ID, ""),
                metadata.get("authorization", ""),
                CURRENT.get(),
            )


def _is_shadow(metadata: Mapping[str, str]) -> bool:
    return metadata.get(SHADOW_HEADER, "").lower() == "true"


def _judged(error: BaseException, begun: float, remaining: float | None) -> tuple[int, BaseException]:
    """The status that an error counts as, and the error that the caller is to see."""
    if isinstance(error, RequestFailure):
        return int(error.status), error
    if isinstance(error, asyncio.CancelledError):
        late = remaining is not None and time.monotonic() - begun >= remaining
        return int(HTTPStatus.GATEWAY_TIMEOUT) if late else CLIENT_GONE, error
    journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
    failure = RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the server")
    return int(failure.status), failure
