"""``POST …/generate`` and ``…/generate_stream``: plain JSON in, one JSON answer or server-sent events out."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from slipway_runtime import journal
from slipway_runtime.http.exchange import Exchange
from slipway_runtime.http.inference import CACHE_HIT, VERSION_HEADER, InferenceEndpoint, inflated, service_of
from slipway_runtime.protocol.answer import JSON, Answer, failure_answer
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.generation import EVENTS, decode_generate, event, failure_event, generate_document, single
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.cache import Remembered
from slipway_runtime.serving.job import Outcome
from slipway_runtime.serving.service import ModelService
from slipway_runtime.serving.streaming import Outputs, Stream

_TOO_MANY = 2


class GenerationEndpoint:
    """The generate extension, for models that answer once and for those that answer in parts."""

    def __init__(self, inference: InferenceEndpoint) -> None:
        """Requests are admitted, decoded and counted as those of ``inference``."""
        self._inference = inference

    def handle(self, exchange: Exchange, service: ModelService, *, events: bool) -> None:
        """Take a request for the model of ``service``; with ``events`` each part of the answer is sent at once."""
        self._inference.take(exchange, service, _decode, partial(self._submit, events))

    def _submit(self, events: bool, exchange: Exchange, request: InferRequest) -> None:
        if exchange.gone is None:
            return  # the client left while its body was decoded
        inference = self._inference
        batcher = inference.admit(exchange, request)
        exchange.body = bytearray()
        if batcher.streams is None:
            done = partial(self._executed, events, exchange, request)
            job = batcher.submit(request, done, exchange.tenant_lag)
            exchange.gone = partial(inference.gone, exchange, partial(batcher.cancel, job))
            return
        reply = Reply(inference, exchange, request, events=events)
        stream = batcher.streams.open(request, reply.news)
        reply.stream = stream
        exchange.gone = partial(inference.gone, exchange, stream.cancel)

    def _executed(self, events: bool, exchange: Exchange, request: InferRequest, outcome: Outcome) -> None:
        """An answer in one part."""
        if exchange.gone is None:
            return
        try:
            if isinstance(outcome, RequestFailure):
                raise outcome
            data = part_document(exchange, request, outcome)
            hit = (CACHE_HIT,) if isinstance(outcome, Remembered) else ()
            body, kind = (event(data), EVENTS) if events else (data, JSON)
            self._inference.finish(exchange, Answer(body=(body,), content_type=kind, headers=hit))
        except RequestFailure as failure:
            self._inference.finish(exchange, failure_answer(failure))
        except Exception as unexpected:
            self._inference.defect(exchange, unexpected)


class Reply:
    """An answer in parts on its way to a client."""

    def __init__(
        self, inference: InferenceEndpoint, exchange: Exchange, request: InferRequest, *, events: bool
    ) -> None:
        self._inference = inference
        self._exchange = exchange
        self._request = request
        self._events = events
        self._parts: list[Outputs] = []
        self.stream: Stream | None = None

    def news(self) -> None:
        """There may be something to take, or room for it."""
        stream, exchange = self.stream, self._exchange
        if stream is None or exchange.gone is None:
            return
        try:
            if self._events:
                self._send(stream)
            else:
                self._collect(stream)
        except RequestFailure as failure:
            self._fail(stream, failure)
        except Exception as unexpected:
            journal.record("internal-error", "error", cause=f"{type(unexpected).__name__}: {unexpected}")
            text = "internal error of the server"
            self._fail(stream, RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, text))

    def _send(self, stream: Stream) -> None:
        """As many events as the client has room for; the status is settled by the first part."""
        exchange = self._exchange
        if exchange.stream is None:
            if not stream.buffer and not stream.finished:
                return
            if stream.finished and stream.failure is not None:
                raise stream.failure
            headers = ((VERSION_HEADER, service_of(exchange).version), ("Cache-Control", "no-cache"))
            exchange.begin(Answer(content_type=EVENTS, headers=headers), self.news)
        body = exchange.stream
        assert body is not None
        while body.writable and (part := stream.take()) is not None:
            exchange.send(event(part_document(exchange, self._request, part)))
        if body.writable and stream.finished:
            if stream.failure is not None:
                raise stream.failure
            self._inference.count(exchange, HTTPStatus.OK)
            exchange.send(end=True)

    def _collect(self, stream: Stream) -> None:
        """The one part that a plain answer has room for."""
        while len(self._parts) < _TOO_MANY and (part := stream.take()) is not None:
            self._parts.append(part)
        if stream.finished and stream.failure is not None:
            raise stream.failure
        if stream.finished or len(self._parts) == _TOO_MANY:
            data = part_document(self._exchange, self._request, single(self._parts))
            self._inference.finish(self._exchange, Answer(body=(data,)))

    def _fail(self, stream: Stream, failure: RequestFailure) -> None:
        """An error answer or, once the answer has begun, an event that says so."""
        exchange = self._exchange
        if exchange.stream is None:
            self._inference.finish(exchange, failure_answer(failure))
        else:
            self._inference.count(exchange, failure.status)
            exchange.send(failure_event(failure), end=True)
        stream.cancel()


def part_document(exchange: Exchange, request: InferRequest, outputs: Outputs) -> bytes:
    """The JSON of an answer or of a part of one. Raises RequestFailure (400)."""
    service = service_of(exchange)
    return generate_document(service.name, service.version, request, outputs)


def _decode(exchange: Exchange, max_body: int) -> InferRequest:
    model, _ = service_of(exchange).serving(exchange.begun)
    return decode_generate(inflated(exchange, max_body), model.signature)
