"""The methods of ``inference.GRPCInferenceService`` and ``grpc.health.v1.Health``, on plain bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

import grpc

from slipway_runtime import journal
from slipway_runtime.http.inference import VERSION_HEADER
from slipway_runtime.models.model import Model
from slipway_runtime.protocol.failures import RequestFailure, not_found, unavailable, unsupported
from slipway_runtime.protocol.metadata import (
    LOG_SETTINGS,
    TRACE_SETTINGS,
    index_entry,
    model_config,
    model_metadata,
    refuse_changes,
    server_metadata,
)
from slipway_runtime.rpc import documents
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.requests import named, settings_of
from slipway_runtime.rpc.wire import number_field
from slipway_runtime.serving.service import ModelService

_INFERENCE = "inference.GRPCInferenceService"
_HEALTH = "grpc.health.v1.Health"
_SERVING, _NOT_SERVING = 1, 2
_EMPTY = b""
_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
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

    def __init__(self, service: ModelService, inference: RpcInference) -> None:
        self._service = service
        self._inference = inference

    def handlers(self) -> tuple[Any, ...]:
        """The handlers that a gRPC server takes, one for each of the two services."""
        methods = {name: _unary(answer) for name, answer in self._answers().items()}
        unary = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
        inference = unary | {
            "ModelInfer": grpc.unary_unary_rpc_method_handler(self._infer),
            "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
        }
        health = {"Check": grpc.unary_unary_rpc_method_handler(_unary(self._health))}
        return (
            grpc.method_handlers_generic_handler(_INFERENCE, inference),
            grpc.method_handlers_generic_handler(_HEALTH, health),
        )

    def _answers(self) -> dict[str, Answer]:
        """Everything but inference."""
        service = self._service
        return {
            "ServerLive": lambda _: number_field(1, 1),
            "ServerReady": lambda _: number_field(1, int(service.ready)),
            "ModelReady": self._model_ready,
            "ServerMetadata": lambda _: documents.SERVER_METADATA.encode(server_metadata()),
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": _refuse("this server holds one model for its life; load is not offered"),
            "RepositoryModelUnload": _refuse("this server holds one model for its life; unload is not offered"),
            "SystemSharedMemoryStatus": lambda _: _EMPTY,
            "SystemSharedMemoryRegister": _refuse("shared memory is not supported"),
            "SystemSharedMemoryUnregister": _refuse("shared memory is not supported"),
            "CudaSharedMemoryStatus": lambda _: _EMPTY,
            "CudaSharedMemoryRegister": _refuse("shared memory is not supported"),
            "CudaSharedMemoryUnregister": _refuse("shared memory is not supported"),
            "TraceSetting": self._trace_settings,
            "LogSettings": self._log_settings,
        }

    async def _infer(self, data: bytes, context: Any) -> bytes:
        try:
            response = await self._inference.infer(data, _metadata(context), context.time_remaining())
        except RequestFailure as failure:
            return await _abort(context, failure)
        context.set_trailing_metadata(((VERSION_HEADER, self._service.version),))
        return response

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        context.set_trailing_metadata(((VERSION_HEADER, self._service.version),))
        responses = self._inference.stream(requests, _metadata(context), context.time_remaining())
        async for response in responses:
            yield response

    def _model_ready(self, data: bytes) -> bytes:
        name, version = named(data)
        return number_field(1, int(self._knows(name, version) and self._service.ready))

    def _knows(self, name: str, version: str) -> bool:
        return name == self._service.name and version in ("", self._service.version)

    def _model(self, data: bytes) -> Model:
        name, version = named(data)
        if not self._knows(name, version):
            raise not_found(f"there is no model '{name}' of this version here")
        if self._service.model is None:
            raise unavailable("the model is not ready yet")
        return self._service.model

    def _model_metadata(self, data: bytes) -> bytes:
        service, model = self._service, self._model(data)
        return documents.MODEL_METADATA.encode(model_metadata(service.name, service.version, model, service.sha256))

    def _model_config(self, data: bytes) -> bytes:
        service, model = self._service, self._model(data)
        config = model_config(service.name, model, service.max_batch_size, service.max_delay)
        return documents.MODEL_CONFIG.encode({"config": config})

    def _model_statistics(self, data: bytes) -> bytes:
        service = self._service
        name, version = named(data)
        if name and not self._knows(name, version):
            raise not_found(f"there is no model '{name}' of this version here")
        return documents.MODEL_STATISTICS.encode(
            {"model_stats": [service.statistics.document(service.name, service.version)]}
        )

    def _repository_index(self, _: bytes) -> bytes:
        service = self._service
        reason = "" if service.ready else service.phase.value
        return documents.REPOSITORY_INDEX.encode(
            {"models": [index_entry(service.name, service.version, service.ready, reason)]}
        )

    def _trace_settings(self, data: bytes) -> bytes:
        refuse_changes(TRACE_SETTINGS, settings_of(data))
        return documents.trace_settings(TRACE_SETTINGS)

    def _log_settings(self, data: bytes) -> bytes:
        refuse_changes(LOG_SETTINGS, settings_of(data))
        return documents.log_settings(LOG_SETTINGS)

    def _health(self, data: bytes) -> bytes:
        name, _ = named(data)
        if name not in ("", _INFERENCE):
            raise not_found("there is no such service here")
        return number_field(1, _SERVING if self._service.ready else _NOT_SERVING)


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


def _refuse(text: str) -> Answer:
    def refuse(_: bytes) -> bytes:
        raise unsupported(text)

    return refuse


async def _abort(context: Any, failure: RequestFailure) -> bytes:
    """End the call with the failure's code; does not return."""
    code = _CODES.get(failure.status, grpc.StatusCode.INTERNAL)
    await context.abort(code, failure.text)
    raise AssertionError("abort raises")


def _metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
