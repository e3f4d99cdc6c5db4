"""The methods of ``inference.GRPCInferenceService`` and ``grpc.health.v1.Health``, on plain bytes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import grpc

from slipway_runtime import journal
from slipway_runtime.http.inference import VERSION_HEADER
from slipway_runtime.models.model import Model
from slipway_runtime.protocol.failures import RequestFailure, forbidden, not_found, unavailable, unsupported
from slipway_runtime.protocol.metadata import (
    model_config,
    model_metadata,
    server_metadata,
)
from slipway_runtime.repository.control import ModelControl
from slipway_runtime.repository.repository import Repository
from slipway_runtime.rpc import documents
from slipway_runtime.rpc.conversation import Conversation
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.requests import model_change, named, settings_of, wants_ready_only
from slipway_runtime.rpc.wire import number_field
from slipway_runtime.serving.service import ModelService
from slipway_runtime.telemetry.switches import Switches

_INFERENCE = "inference.GRPCInferenceService"
_HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = 1, 2
_EMPTY = b""
CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: grpc.StatusCode.UNIMPLEMENTED,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.NOT_IMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT: grpc.StatusCode.DEADLINE_EXCEEDED,
}

Answer = Callable[[bytes], bytes]


class RpcService:
    """Bytes in, bytes out: there are no stubs."""

    def __init__(
        self,
        repository: Repository,
        inference: RpcInference,
        control: ModelControl | None = None,
        switches: Switches | None = None,
    ) -> None:
        """Without ``control``, models stay what they are; without ``switches``, nothing is traced."""
        self._switches = switches or Switches()
        self._control = control
        self._repository = repository
        self._inference = inference

    def handlers(self) -> tuple[Any, ...]:
        """The handlers that a gRPC server takes, one for each of the two services."""
        methods = {name: _unary(answer) for name, answer in self._answers().items()}
        unary = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        inference = unary | {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        inference |= {
            name: grpc.unary_unary_rpc_method_handler(self._changing(name))
            for name in ("RepositoryModelLoad", "RepositoryModelUnload")
        }
        health = {"Check": grpc.unary_unary_rpc_method_handler(_unary(self._health))}
        return (
            grpc.method_handlers_generic_handler(_INFERENCE, inference),
            grpc.method_handlers_generic_handler(_HEALTH, health),
        )

    def _answers(self) -> dict[str, Answer]:
        """Everything but inference."""
        return {
            "ServerLive": lambda _: number_field(1, 1),
            "ServerReady": lambda _: number_field(1, int(self._repository.ready)),
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda _: documents.SERVER_METADATA.encode(server_metadata()),
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._repository_index,
            "SystemSharedMemoryStatus": _no_regions,
            "SystemSharedMemoryRegister": _refuse("shared memory is not supported"),
            "SystemSharedMemoryUnregister": _refuse("shared memory is not supported"),
            "CudaSharedMemoryStatus": _no_regions,
            "CudaSharedMemoryRegister": _refuse("shared memory is not supported"),
            "CudaSharedMemoryUnregister": _refuse("shared memory is not supported"),
            "TraceSetting": self._trace_settings,
            "LogSettings": self._log_settings,
        }

    async def _infer(self, data: bytes, context: Any) -> bytes:
        metadata = _metadata(context)
        try:
            service = self._inference.target(data, metadata)
            response = await self._inference.infer(service, data, metadata, context.time_remaining())
        except RequestFailure as failure:
            return await _abort(context, failure)
        context.set_trailing_metadata(((VERSION_HEADER, service.version),))
        return response

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        if (sole := self._repository.sole) is not None:
            context.set_trailing_metadata(((VERSION_HEADER, sole.version),))
        conversation = Conversation(self._inference, _metadata(context), context.time_remaining())
        async with contextlib.aclosing(conversation.responses(requests)) as responses:
            async for response in responses:
                yield response

    def _model_ready(self, data: bytes) -> bytes:
        name, version = named(data)
        try:
            return number_field(1, int(self._repository.find(name, version).ready))
        except RequestFailure:
            return number_field(1, 0)

    def _model(self, data: bytes) -> tuple[ModelService, Model]:
        name, version = named(data)
        service = self._repository.find(name, version)
        if service.model is None:
            raise unavailable("the model is not ready yet")
        return service, service.model

    def _model_metadata(self, data: bytes) -> bytes:
        service, model = self._model(data)
        versions = self._repository.versions(service.name)
        return documents.MODEL_METADATA.encode(model_metadata(service.name, versions, model, service.sha256))

    def _model_config(self, data: bytes) -> bytes:
        service, model = self._model(data)
        config = model_config(service.name, model, service.max_batch_size, service.max_delay, service.instances)
        return documents.MODEL_CONFIG.encode({"config": config})

    def _model_statistics(self, data: bytes) -> bytes:
        name, version = named(data)
        repository = self._repository
        services = [repository.find(name, version)] if name else [place.service for place in repository.places()]
        return documents.MODEL_STATISTICS.encode(
            {"model_stats": [one.statistics.document(one.name, one.version) for one in services]}
        )

    def _repository_index(self, data: bytes) -> bytes:
        entries = self._repository.index(only_ready=wants_ready_only(data))
        return documents.REPOSITORY_INDEX.encode({"models": entries})

    def _changing(self, method: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Load or unload a model; the response comes when that is done."""

        async def call(data: bytes, context: Any) -> bytes:
            try:
                name, parameters = model_change(data)
                if self._control is None:
                    raise forbidden("this server does not change its models")
                token = _metadata(context).get("authorization", "")
                if method == "RepositoryModelLoad":
                    await self._control.load(name, parameters, token)
                else:
                    await self._control.unload(name, token)
                return _EMPTY
            except RequestFailure as failure:
                return await _abort(context, failure)

        return call

    def _trace_settings(self, data: bytes) -> bytes:
        self._switches.change_tracing(settings_of(data))
        return documents.trace_settings(self._switches.trace_settings())

    def _log_settings(self, data: bytes) -> bytes:
        self._switches.change_logging(settings_of(data))
        return documents.log_settings(self._switches.log_settings())

    def _health(self, data: bytes) -> bytes:
        name, _ = named(data)
        if name not in ("", _INFERENCE):
            raise not_found("there is no such service here")
        return number_field(1, _SERVING if self._repository.ready else _NOT_SERVING)


def _unary(answer: Answer) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def call(data: bytes, context: Any) -> bytes:
        try:
            return answer(data)
        except RequestFailure as failure:
            return await _abort(context, failure)
        except Exception as error:
            journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")
            return await _abort(
                context, RequestFailure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error of the server")
            )

    return call


def _no_regions(data: bytes) -> bytes:
    if named(data)[0]:
        raise not_found("there is no such region of shared memory")
    return _EMPTY


def _refuse(text: str) -> Answer:
    def refuse(_: bytes) -> bytes:
        raise unsupported(text)

    return refuse


async def _abort(context: Any, failure: RequestFailure) -> bytes:
    """End the call with the failure's code; does not return."""
    client = HTTPStatus.BAD_REQUEST <= failure.status < HTTPStatus.INTERNAL_SERVER_ERROR
    unusual = grpc.StatusCode.INVALID_ARGUMENT if client else grpc.StatusCode.INTERNAL
    await context.abort(CODES.get(failure.status, unusual), failure.text)
    raise AssertionError("abort raises")


def _metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
