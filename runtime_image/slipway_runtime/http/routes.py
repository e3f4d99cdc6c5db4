"""Which path means what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import orjson

from slipway_runtime import journal
from slipway_runtime.http.exchange import Exchange
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.metrics.exposition import CONTENT_TYPE
from slipway_runtime.models.model import Model
from slipway_runtime.protocol.answer import Answer, failure_answer, json_answer
from slipway_runtime.protocol.failures import RequestFailure, invalid, not_found, unavailable, unsupported
from slipway_runtime.protocol.metadata import (
    LOG_SETTINGS,
    TRACE_SETTINGS,
    index_entry,
    model_config,
    model_metadata,
    refuse_changes,
    server_metadata,
)
from slipway_runtime.serving.service import ModelService

_READ = ("GET", "HEAD")
_UNREADY = Answer(HTTPStatus.BAD_REQUEST)
_EMPTY = Answer()
_SHARED_MEMORY = ("systemsharedmemory", "cudasharedmemory")


class Router:
    """Answers everything but inference by itself; hands inference to its endpoint."""

    def __init__(self, service: ModelService, inference: InferenceEndpoint) -> None:
        self._service = service
        self._inference = inference
        model, version = service.name, service.version
        self._infer_targets = {f"/v2/models/{model}/infer", f"/v2/models/{model}/versions/{version}/infer"}

    def handle(self, exchange: Exchange) -> None:
        """Answer a request, now or (inference) later."""
        try:
            if exchange.target in self._infer_targets and exchange.method == "POST":
                self._inference.handle(exchange)
            else:
                self._route(exchange)
        except RequestFailure as failure:
            exchange.respond(failure_answer(failure))
        except Exception as error:
            # A defect of ours: the client gets an answer, the connection and the server go on.
            journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
            text = "internal error of the server"
            exchange.respond(failure_answer(RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, text)))

    def _route(self, exchange: Exchange) -> None:
        parts = [unquote(part) for part in exchange.path.strip("/").split("/")]
        match parts:
            case ["v2", "models", model, "infer"]:
                self._infer(exchange, model, None)
                return
            case ["v2", "models", model, "versions", version, "infer"]:
                self._infer(exchange, model, version)
                return
        if exchange.rejection is not None:
            raise exchange.rejection
        exchange.respond(self._answer(exchange, parts))

    def _infer(self, exchange: Exchange, model: str, version: str | None) -> None:
        if model != self._service.name:
            raise exchange.rejection or not_found(f"there is no model '{model}' here")
        if exchange.rejection is None:
            _allow(exchange, "POST")
        if version not in (None, "", self._service.version) and exchange.rejection is None:
            exchange.rejection = not_found(f"model '{model}' has no version '{version}' here")
        self._inference.handle(exchange)

    def _answer(self, exchange: Exchange, parts: list[str]) -> Answer:
        match parts:
            case ["metrics"]:
                _allow(exchange, *_READ)
                return Answer(body=(self._service.metrics_text(),), content_type=CONTENT_TYPE)
            case ["v2"]:
                _allow(exchange, *_READ)
                return json_answer(server_metadata())
            case ["v2", "health", "live"]:
                _allow(exchange, *_READ)
                return _EMPTY
            case ["v2", "health", "ready"]:
                _allow(exchange, *_READ)
                return _EMPTY if self._service.ready else _UNREADY
            case ["v2", "models", "stats"]:
                _allow(exchange, *_READ)
                return self._statistics()
            case ["v2", "models", model, "versions", version, *rest] if len(rest) <= 1:
                _allow(exchange, *_READ)
                return self._model(model, version, rest)
            case ["v2", "models", model, *rest] if len(rest) <= 1:
                _allow(exchange, *_READ)
                return self._model(model, None, rest)
            case ["v2", "repository", "index"]:
                _allow(exchange, "POST")
                return self._index()
            case ["v2", "repository", "models", _, "load" | "unload"]:
                raise unsupported("this server holds one model for its life; load and unload are not offered")
            case ["v2", kind, *_, "status"] if kind in _SHARED_MEMORY:
                _allow(exchange, *_READ)
                return json_answer([])
            case ["v2", "trace", "setting"] | ["v2", "models", _, "trace", "setting"]:
                return self._settings(exchange, TRACE_SETTINGS)
            case ["v2", "logging"]:
                return self._settings(exchange, LOG_SETTINGS)
            case ["v2", kind, *_] if kind in _SHARED_MEMORY:
                raise unsupported(f"'{kind}' is not offered by this server")
        raise not_found("there is nothing at this path")

    def _settings(self, exchange: Exchange, settings: Mapping[str, Any]) -> Answer:
        _allow(exchange, *_READ, "POST")
        if exchange.method == "POST" and exchange.body:
            try:
                wanted = orjson.loads(exchange.body)
            except orjson.JSONDecodeError as error:
                raise invalid("the body is not valid JSON") from error
            if not isinstance(wanted, dict):
                raise invalid("the body must be an object of settings")
            refuse_changes(settings, wanted)
        return json_answer(settings)

    def _model(self, model: str, version: str | None, rest: list[str]) -> Answer:
        service = self._service
        known = model == service.name and version in (None, "", service.version)
        if rest == ["ready"]:
            return _EMPTY if known and service.ready else _UNREADY
        if not known:
            raise not_found(f"there is no model '{model}' of this version here")
        if rest == ["stats"]:
            return self._statistics()
        documents: dict[str, Callable[[Model], object]] = {
            "": lambda loaded: model_metadata(service.name, service.version, loaded, service.sha256),
            "config": lambda loaded: model_config(service.name, loaded, service.max_batch_size, service.max_delay),
        }
        make = documents.get(rest[0] if rest else "")
        if make is None:
            raise not_found("there is nothing at this path")
        if service.model is None:
            raise unavailable("the model is not ready yet")
        return json_answer(make(service.model))

    def _statistics(self) -> Answer:
        service = self._service
        return json_answer({"model_stats": [service.statistics.document(service.name, service.version)]})

    def _index(self) -> Answer:
        service = self._service
        reason = "" if service.ready else service.phase.value
        return json_answer([index_entry(service.name, service.version, service.ready, reason)])


def _allow(exchange: Exchange, *methods: str) -> None:
    if exchange.method not in methods:
        raise RequestFailure(HTTPStatus.METHOD_NOT_ALLOWED, f"this path takes {' or '.join(methods)} only")
