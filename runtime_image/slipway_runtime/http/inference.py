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
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import ModelService
from slipway_runtime.shadow.candidate import SHADOW_HEADER
from slipway_runtime.shadow.repeater import Repeater

REQUEST_ID_HEADER = "x-request-id"
VERSION_HEADER = "x-model-version"
_HEAD_LENGTH = "inference-header-content-length"
# JSON beyond this takes milliseconds: it is (de)coded in a thread, so that health answers never wait.
_LARGE_JSON = 256 * 1024


class InferenceEndpoint:
    """Decodes, submits, encodes. One instance per server."""

    def __init__(self, service: ModelService, max_body: int, repeater: Repeater | None = None) -> None:
        """``max_body`` in bytes; ``repeater`` is offered every request that users have had an answer to."""
        self._service = service
        self._repeater = repeater
        self._max_body = max_body
        self._loop = asyncio.get_running_loop()
        self._codec_threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="codec")
        self._version_header = (VERSION_HEADER, service.version)

    def handle(self, exchange: Exchange) -> None:
        """Take a request for our model; whatever happens, it is counted and answered."""
        metrics = self._service.metrics
        metrics.in_flight.add()
        exchange.gone = partial(self._gone, exchange, None)
        try:
            if exchange.rejection is not None:
                raise exchange.rejection
            self._service.serving(exchange.begun)
            decode = partial(_decode, exchange, self._max_body)
            if _is_heavy(exchange):
                self._in_thread(decode, partial(self._submit, exchange), exchange)
            else:
                self._submit(exchange, decode())
        except RequestFailure as failure:
            self._finish(exchange, failure_answer(failure))
        except Exception as unexpected:
            self._defect(exchange, unexpected)

    def close(self) -> None:
        """Let go of the threads."""
        self._codec_threads.shutdown(wait=False)

    def _in_thread(self, work: Callable[[], Any], then: Callable[[Any], None], exchange: Exchange) -> None:
        """Run codec work in a thread, then go on here; failures become the answer."""

        def done(future: asyncio.Future[Any]) -> None:
            error = future.exception()
            try:
                if error is not None:
                    raise error
                then(future.result())
            except RequestFailure as failure:
                self._finish(exchange, failure_answer(failure))
            except Exception as unexpected:
                self._defect(exchange, unexpected)

        asyncio.ensure_future(self._loop.run_in_executor(self._codec_threads, work)).add_done_callback(done)

    def _defect(self, exchange: Exchange, error: Exception) -> None:
        journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
        failure = RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the server")
        self._finish(exchange, failure_answer(failure))

    def _submit(self, exchange: Exchange, request: InferRequest) -> None:
        if exchange.gone is None:
            return  # the client left while its body was decoded
        model, batcher = self._service.serving(exchange.begun)
        check_against(model.signature, request)
        if _is_shadow(exchange):
            self._service.admit_shadow(batcher)
        job = batcher.submit(request, partial(self._executed, exchange, request))
        exchange.gone = partial(self._gone, exchange, partial(batcher.cancel, job))
        exchange.body = bytearray()

    def _executed(self, exchange: Exchange, request: InferRequest, outcome: Outcome) -> None:
        if exchange.gone is None:
            return  # the client left; it is counted already
        try:
            if isinstance(outcome, RequestFailure):
                raise outcome
            encode = partial(self._encode, exchange, request, outcome)
            large = any(output.array.nbytes > LARGE for output in outcome)
            if large and (_wants_text(request) or "accept-encoding" in exchange.headers):
                self._in_thread(encode, partial(self._finish, exchange), exchange)
            else:
                self._finish(exchange, encode())
        except RequestFailure as failure:
            self._finish(exchange, failure_answer(failure))
        except Exception as unexpected:
            self._defect(exchange, unexpected)
        else:
            if self._repeater is not None and not _is_shadow(exchange):
                headers = exchange.headers
                self._repeater.offer(
                    request, outcome, headers.get(REQUEST_ID_HEADER, ""), headers.get("authorization", "")
                )

    def _encode(self, exchange: Exchange, request: InferRequest, outcome: Any) -> Answer:
        model, service = self._service.model, self._service
        assert model is not None
        answer = infer_answer(service.name, service.version, request, outcome, model.signature)
        encoding = wanted_encoding(exchange.headers.get("accept-encoding", ""))
        return answer if encoding is None else deflate(answer, encoding)

    def _finish(self, exchange: Exchange, answer: Answer) -> None:
        if exchange.gone is None:
            return
        self._count(exchange, answer.status)
        headers = (*answer.headers, self._version_header)
        exchange.respond(Answer(answer.status, answer.body, answer.content_type, headers))

    def _gone(self, exchange: Exchange, cancel: Callable[[], None] | None) -> None:
        self._count(exchange, CLIENT_GONE)
        if cancel is not None:
            cancel()

    def _count(self, exchange: Exchange, code: int) -> None:
        service = self._service
        seconds = time.monotonic() - exchange.received
        service.metrics.in_flight.add(-1)
        service.metrics.request_finished(code, _is_shadow(exchange), seconds)
        service.statistics.request_finished(code == HTTPStatus.OK, seconds)


def _is_shadow(exchange: Exchange) -> bool:
    return exchange.headers.get(SHADOW_HEADER, "").lower() == "true"


def _is_heavy(exchange: Exchange) -> bool:
    if len(exchange.body) > LARGE and "content-encoding" in exchange.headers:
        return True
    return len(exchange.body) > _LARGE_JSON and _HEAD_LENGTH not in exchange.headers


def _wants_text(request: InferRequest) -> bool:
    """Whether an output is to be written as JSON."""
    if request.outputs is None:
        return not request.binary_outputs
    return any(not wanted.binary for wanted in request.outputs)


def _decode(exchange: Exchange, max_body: int) -> InferRequest:
    body = exchange.body
    encoding = exchange.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        body = inflate(body, encoding, max_body)
    return decode_request(memoryview(body), exchange.headers.get(_HEAD_LENGTH))
