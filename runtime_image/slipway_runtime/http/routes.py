"""Which path means what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote

import orjson

from slipway_runtime import journal
from slipway_runtime.http.exchange import Exchange
from slipway_runtime.http.generation import GenerationEndpoint
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.metrics.exposition import CONTENT_TYPE
from slipway_runtime.protocol.answer import Answer, failure_answer, json_answer
from slipway_runtime.protocol.failures import (
    RequestFailure,
    forbidden,
    invalid,
    not_found,
    too_large,
    unavailable,
    unsupported,
)
from slipway_runtime.protocol.metadata import (
    model_config,
    model_metadata,
    server_metadata,
)
from slipway_runtime.repository.control import ModelControl
from slipway_runtime.repository.repository import Repository
from slipway_runtime.serving.service import ModelService
from slipway_runtime.telemetry.switches import Switches

_READ = ("GET", "HEAD")
_WORDS = frozenset(
    {
        "v2", "models", "versions", "infer", "generate", "generate_stream", "ready", "config", "stats",
        "health", "live", "repository", "index", "load", "unload", "trace", "setting", "logging",
        "systemsharedmemory", "cudasharedmemory", "region", "status", "register", "unregister", "metrics",
    }
)  # fmt: skip
_MOST_SETTINGS = 1024 * 1024
"""Bytes of a body that is read at once."""
_UNREADY = Answer(HTTPStatus.BAD_REQUEST)
_EMPTY = Answer()


class Router:
    """Answers everything but inference by itself; hands inference to its endpoint."""

    def __init__(
        self,
        repository: Repository,
        inference: InferenceEndpoint,
        control: ModelControl | None = None,
        switches: Switches | None = None,
    ) -> None:
        """Without ``control``, models stay what they are; without ``switches``, nothing is traced."""
        self._switches = switches or Switches()
        self._repository = repository
        self._inference = inference
        self._generation = GenerationEndpoint(inference)
        self._control = control
        self._tasks: set[asyncio.Task[None]] = set()
        self._infer_targets: dict[str, ModelService] = {}
        repository.follow(self._publish)

    def _publish(self) -> None:
        """Know the usual targets of inference without looking into them."""
        targets: dict[str, ModelService] = {}
        for place in self._repository.places():
            service = place.service
            targets[f"/v2/models/{quote(service.name)}/versions/{service.version}/infer"] = service
            targets[f"/v2/models/{quote(service.name)}/infer"] = self._repository.find(service.name)
        self._infer_targets = targets

    def handle(self, exchange: Exchange) -> None:
        """Answer a request, now or (inference) later."""
        try:
            service = self._infer_targets.get(exchange.target)
            if service is not None and exchange.method == "POST":
                self._inference.handle(exchange, service)
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
        parts = _segments(exchange.path)
        match parts:
            case ["v2", "models", model, "infer"]:
                self._infer(exchange, model, None)
                return
            case ["v2", "models", model, "versions", version, "infer"]:
                self._infer(exchange, model, version)
                return
            case ["v2", "models", model, "generate" | "generate_stream" as form]:
                self._infer(exchange, model, None, form)
                return
            case ["v2", "models", model, "versions", version, "generate" | "generate_stream" as form]:
                self._infer(exchange, model, version, form)
                return
        if exchange.rejection is not None:
            raise exchange.rejection
        match parts:
            case ["v2", "repository", "models", model, "load" | "unload" as action]:
                self._change(exchange, model, action)
            case _:
                exchange.respond(self._answer(exchange, parts))

    def _infer(self, exchange: Exchange, model: str, version: str | None, form: str = "infer") -> None:
        if exchange.rejection is None:
            _allow(exchange, "POST")
        elif not self._repository.places(model):
            raise exchange.rejection
        service = self._repository.find(model)
        try:
            service = self._repository.find(model, version)
        except RequestFailure as failure:
            exchange.rejection = exchange.rejection or failure
        if form == "infer":
            self._inference.handle(exchange, service)
        else:
            self._generation.handle(exchange, service, events=form == "generate_stream")

    def _answer(self, exchange: Exchange, parts: list[str]) -> Answer:
        match parts:
            case ["metrics"]:
                _allow(exchange, *_READ)
                return Answer(body=(self._repository.metrics_text(),), content_type=CONTENT_TYPE)
            case ["v2"]:
                _allow(exchange, *_READ)
                return json_answer(server_metadata())
            case ["v2", "health", "live"]:
                _allow(exchange, *_READ)
                return _EMPTY
            case ["v2", "health", "ready"]:
                _allow(exchange, *_READ)
                return _EMPTY if self._repository.ready else _UNREADY
            case ["v2", "models", "stats"]:
                _allow(exchange, *_READ)
                return self._statistics([place.service for place in self._repository.places()])
            case ["v2", "models", model, "versions", version]:
                return self._model(exchange, model, version)
            case ["v2", "models", model, "versions", version, "ready" | "config" | "stats" as part]:
                return self._model(exchange, model, version, part)
            case ["v2", "models", model]:
                return self._model(exchange, model, None)
            case ["v2", "models", model, "ready" | "config" | "stats" as part]:
                return self._model(exchange, model, None, part)
            case ["v2", "repository", "index"]:
                _allow(exchange, "POST")
                only_ready = _object(exchange).get("ready", False)
                if not isinstance(only_ready, bool):
                    raise invalid("'ready' must be true or false")
                return json_answer(self._repository.index(only_ready=only_ready))
            case ["v2", "systemsharedmemory" | "cudasharedmemory" as kind, *rest]:
                return _shared_memory(exchange, kind, rest)
            case ["v2", "models", model, "trace", "setting"]:
                _allow(exchange, *_READ, "POST")
                self._repository.find(model)
                return self._settings(exchange, self._switches.trace_settings, self._switches.change_tracing)
            case ["v2", "trace", "setting"]:
                return self._settings(exchange, self._switches.trace_settings, self._switches.change_tracing)
            case ["v2", "logging"]:
                return self._settings(exchange, self._switches.log_settings, self._switches.change_logging)
        raise not_found("there is nothing at this path")

    def _change(self, exchange: Exchange, model: str, action: str) -> None:
        """Load or unload a model; the answer comes when that is done."""
        _allow(exchange, "POST")
        parameters = _object(exchange).get("parameters", {})
        if not isinstance(parameters, dict):
            raise invalid("'parameters' must be an object")
        if self._control is None:
            raise forbidden("this server does not change its models")
        token = exchange.headers.get("authorization", "")
        control = self._control
        work = control.load(model, parameters, token) if action == "load" else control.unload(model, token)
        task = asyncio.get_running_loop().create_task(_answered(exchange, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _settings(
        self, exchange: Exchange, read: Callable[[], dict[str, Any]], change: Callable[[Mapping[str, Any]], None]
    ) -> Answer:
        _allow(exchange, *_READ, "POST")
        if exchange.method == "POST":
            change(_object(exchange))
        return json_answer(read())

    def _model(self, exchange: Exchange, model: str, version: str | None, part: str = "") -> Answer:
        _allow(exchange, *_READ)
        if part == "ready":
            return _EMPTY if self._is_ready(model, version) else _UNREADY
        service = self._repository.find(model, version)
        if part == "stats":
            return self._statistics([service])
        loaded = service.model
        if loaded is None:
            raise unavailable("the model is not ready yet")
        if part == "config":
            return json_answer(
                model_config(model, loaded, service.max_batch_size, service.max_delay, service.instances)
            )
        return json_answer(model_metadata(model, self._repository.versions(model), loaded, service.sha256))

    def _is_ready(self, model: str, version: str | None) -> bool:
        try:
            return self._repository.find(model, version).ready
        except RequestFailure:
            return False

    def _statistics(self, services: list[ModelService]) -> Answer:
        return json_answer({"model_stats": [one.statistics.document(one.name, one.version) for one in services]})


def _allow(exchange: Exchange, *methods: str) -> None:
    if exchange.method not in methods:
        raise RequestFailure(
            HTTPStatus.METHOD_NOT_ALLOWED,
            f"this path takes {' or '.join(methods)} only",
            headers=(("Allow", ", ".join(methods)),),
        )


def _shared_memory(exchange: Exchange, kind: str, rest: list[str]) -> Answer:
    """There are no regions of shared memory, and none can be registered."""
    match rest:
        case ["status"]:
            _allow(exchange, *_READ)
            return json_answer([])
        case ["region", _, "status"]:
            _allow(exchange, *_READ)
            raise not_found("there is no such region of shared memory")
        case ["region", _, "register" | "unregister"] | ["unregister"]:
            _allow(exchange, "POST")
            raise unsupported(f"'{kind}' is not offered by this server")
    raise not_found("there is nothing at this path")


def _segments(path: str) -> list[str]:
    """The words and names of a path; none where there is another way to write it.

    A rule of a proxy for a path must hold for all forms of it that are answered.
    """
    start, *given = path.split("/")
    found = [unquote(part) for part in given]
    disguised = any(one in _WORDS and one != part for one, part in zip(found, given, strict=True))
    return [] if start or disguised or "" in found else found


def _object(exchange: Exchange) -> dict[str, Any]:
    """The JSON object in the body; an empty one where there is none. Raises RequestFailure (400, 413)."""
    if not exchange.body:
        return {}
    if len(exchange.body) > _MOST_SETTINGS:
        raise too_large(f"this path takes no more than {_MOST_SETTINGS} bytes")
    try:
        found = orjson.loads(exchange.body)
    except orjson.JSONDecodeError as error:
        raise invalid("the body is not valid JSON") from error
    if not isinstance(found, dict):
        raise invalid("the body must be a JSON object")
    return found


async def _answered(exchange: Exchange, work: Awaitable[None]) -> None:
    try:
        await work
    except RequestFailure as failure:
        exchange.respond(failure_answer(failure))
    except Exception as error:
        journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
        text = "internal error of the server"
        exchange.respond(failure_answer(RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, text)))
    else:
        exchange.respond(json_answer({}))
