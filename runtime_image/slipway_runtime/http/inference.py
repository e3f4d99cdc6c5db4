"""``POST …/infer``: from the body to the batcher and back, counted exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any

from slipway_runtime import journal
from slipway_runtime.http.exchange import Exchange
from slipway_runtime.metrics.recorder import CLIENT_GONE
from slipway_runtime.protocol.answer import Answer, failure_answer, infer_answer
from slipway_runtime.protocol.compression import LARGE, deflate, inflate, wanted_encoding
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest, check_against, decode_request
from slipway_runtime.serving.budget import ByteBudget, bytes_of
from slipway_runtime.serving.cache import Remembered
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import Batching, ModelService
from slipway_runtime.serving.tenants import Tenants
from slipway_runtime.shadow.candidate import SHADOW_HEADER
from slipway_runtime.shadow.repeater import Repeater

REQUEST_ID_HEADER = "x-request-id"
VERSION_HEADER = "x-model-version"
CACHE_HIT = ("x-slipway-cache", "hit")
_HEAD_LENGTH = "inference-header-content-length"
# JSON beyond this takes milliseconds: it is (de)coded in a thread, so that health answers never wait.
_LARGE_JSON = 256 * 1024
_LONGEST_NUMBER = 20


class InferenceEndpoint:
    """Decodes, submits, encodes. One instance per server."""

    def __init__(
        self,
        max_body: int,
        repeater: Repeater | None = None,
        tenants: Tenants | None = None,
        memory: ByteBudget | None = None,
    ) -> None:
        """``max_body`` in bytes; ``repeater`` is offered every request that users have had an answer to.

        The connections have counted in ``memory`` what they received; what that becomes, inflated and read, is counted
        here.
        """
        self._repeater = repeater
        self._tenants = tenants
        self._memory = memory
        self._max_body = max_body
        self._loop = asyncio.get_running_loop()
        self._codec_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="codec")

    def handle(self, exchange: Exchange, service: ModelService) -> None:
        """Take a request for the model of ``service``; whatever happens, it is counted and answered."""
        self.take(exchange, service, decode_body, self._submit)

    def take(
        self,
        exchange: Exchange,
        service: ModelService,
        decode: Callable[[Exchange, int], Any],
        submit: Callable[[Exchange, Any], None],
    ) -> None:
        """Admit a request, have it decoded with ``decode`` (given the largest body) and pass that to ``submit``."""
        service.request_began()
        exchange.service = service
        exchange.gone = partial(self.gone, exchange, None)
        try:
            if exchange.rejection is not None:
                raise exchange.rejection
            service.serving(exchange.begun)
            if self._tenants is not None:
                exchange.tenant_lag = self._tenants.admit(exchange.headers.get(self._tenants.header, ""))
            if _is_heavy(exchange):
                self.in_thread(partial(decode, exchange, self._max_body), partial(submit, exchange), exchange)
            else:
                submit(exchange, decode(exchange, self._max_body))
        except RequestFailure as failure:
            self.finish(exchange, failure_answer(failure))
        except Exception as unexpected:
            self.defect(exchange, unexpected)

    def close(self) -> None:
        """Let go of the threads."""
        self._codec_threads.shutdown(wait=False)

    def in_thread(self, work: Callable[[], Any], then: Callable[[Any], None], exchange: Exchange) -> None:
        """Run codec work in a thread, then go on here; failures become the answer."""

        def done(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            try:
                if error is not None:
                    raise error
                then(future.result())
            except RequestFailure as failure:
                self.finish(exchange, failure_answer(failure))
            except Exception as unexpected:
                self.defect(exchange, unexpected)

        asyncio.ensure_future(self._loop.run_in_executor(self._codec_threads, work)).add_done_callback(done)

    def defect(self, exchange: Exchange, error: Exception) -> None:
        """Answer where something of ours went wrong."""
        with journal.about(() if exchange.watch is None else (exchange.watch,)):
            journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
        failure = RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the server")
        self.finish(exchange, failure_answer(failure))

    def _submit(self, exchange: Exchange, request: InferRequest) -> None:
        if exchange.gone is None:
            return  # the client left while its body was decoded
        batcher = self.admit(exchange, request)
        job = batcher.submit(request, partial(self._executed, exchange, request), exchange.tenant_lag)
        exchange.gone = partial(self.gone, exchange, partial(batcher.cancel, job))
        exchange.body = bytearray()

    def admit(self, exchange: Exchange, request: InferRequest) -> Batching:
        """Where a request goes that fits the model. Raises RequestFailure."""
        service = service_of(exchange)
        model, batcher = service.serving(exchange.begun)
        check_against(model.signature, request)
        if _is_shadow(exchange):
            service.admit_shadow(batcher)
            batcher = batcher.plain
        if self._memory is not None and self._memory.limit:
            size = _held(exchange, request)
            if size > exchange.reserved:
                self._memory.reserve(size, exchange.reserved)
                exchange.reserved = size
        return batcher

    def _executed(self, exchange: Exchange, request: InferRequest, outcome: Outcome) -> None:
        if exchange.gone is None:
            return  # the client left; it is counted already
        try:
            if isinstance(outcome, RequestFailure):
                raise outcome
            encode = partial(self._encode, exchange, request, outcome)
            large = any(output.array.nbytes > LARGE for output in outcome)
            if large and (_wants_text(request) or "accept-encoding" in exchange.headers):
                self.in_thread(encode, partial(self.finish, exchange), exchange)
            else:
                self.finish(exchange, encode())
        except RequestFailure as failure:
            self.finish(exchange, failure_answer(failure))
        except Exception as unexpected:
            self.defect(exchange, unexpected)
        else:
            if self._repeater is not None and not _is_shadow(exchange):
                headers = exchange.headers
                self._repeater.offer(
                    request,
                    outcome,
                    headers.get(REQUEST_ID_HEADER, ""),
                    headers.get("authorization", ""),
                    exchange.watch,
                )

    def _encode(self, exchange: Exchange, request: InferRequest, outcome: Any) -> Answer:
        service = service_of(exchange)
        model = service.model
        assert model is not None
        answer = infer_answer(service.name, service.version, request, outcome, model.signature)
        if isinstance(outcome, Remembered):
            headers = (*answer.headers, CACHE_HIT)
            answer = Answer(answer.status, answer.body, answer.content_type, headers)
        accepted = exchange.headers.get("accept-encoding")
        encoding = None if accepted is None else wanted_encoding(accepted)
        return answer if encoding is None else deflate(answer, encoding)

    def finish(self, exchange: Exchange, answer: Answer) -> None:
        """Count and answer, unless the client left."""
        if exchange.gone is None:
            return
        self.count(exchange, answer.status)
        headers = (*answer.headers, (VERSION_HEADER, service_of(exchange).version))
        exchange.respond(Answer(answer.status, answer.body, answer.content_type, headers))

    def gone(self, exchange: Exchange, cancel: Callable[[], None] | None) -> None:
        """The client left: count it, and give up what is done for it."""
        self.count(exchange, CLIENT_GONE)
        if cancel is not None:
            cancel()

    def count(self, exchange: Exchange, code: int) -> None:
        """The request was answered with ``code``, or given up."""
        service_of(exchange).request_ended(code, _is_shadow(exchange), time.monotonic() - exchange.received)


def service_of(exchange: Exchange) -> ModelService:
    """The model that the exchange was handed over with."""
    assert exchange.service is not None
    return exchange.service


def _is_shadow(exchange: Exchange) -> bool:
    return SHADOW_HEADER in exchange.headers and exchange.headers[SHADOW_HEADER].lower() == "true"


def _held(exchange: Exchange, request: InferRequest) -> int:
    """Bytes that a request takes once it is read: numbers written as JSON are more then, others lie where they came."""
    numbers, texts = bytes_of(request.inputs)
    head = exchange.headers.get(_HEAD_LENGTH)
    if head is not None:
        numbers += int(head)
    return max(exchange.inflated or len(exchange.body), numbers) + texts


def _is_heavy(exchange: Exchange) -> bool:
    body = exchange.body
    if len(body) > LARGE and "content-encoding" in exchange.headers:
        return True
    if len(body) <= _LARGE_JSON:
        return False
    # Tensors of numbers are taken as they lie; texts behind the JSON have to be read one by one.
    head = exchange.headers.get(_HEAD_LENGTH, "")
    if not (head.isascii() and head.isdigit() and len(head) < _LONGEST_NUMBER) or int(head) > _LARGE_JSON:
        return True
    return body.find(b"BYTES", 0, int(head)) >= 0


def _wants_text(request: InferRequest) -> bool:
    """Whether an output is to be written as JSON."""
    if request.outputs is None:
        return not request.binary_outputs
    return any(not wanted.binary for wanted in request.outputs)


def decode_body(exchange: Exchange, max_body: int) -> InferRequest:
    """The request in a body of up to ``max_body`` bytes once inflated. Raises RequestFailure."""
    return decode_request(memoryview(inflated(exchange, max_body)), exchange.headers.get(_HEAD_LENGTH))


def inflated(exchange: Exchange, max_body: int) -> bytes | bytearray:
    """The body without its compression. Raises RequestFailure (400, 413, 415)."""
    encoding = exchange.headers.get("content-encoding")
    if encoding is None or encoding.strip().lower() == "identity":
        return exchange.body
    body = inflate(exchange.body, encoding, max_body)
    exchange.inflated = len(body)
    return body
