"""The generate extension: a request as a plain JSON object, an answer as one, and answers as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from slipway_runtime.protocol.answer import json_values, selected_outputs
from slipway_runtime.protocol.failures import RequestFailure, invalid
from slipway_runtime.protocol.jsondata import decode_json
from slipway_runtime.protocol.request import (
    InferRequest,
    Parameters,
    check_shape,
    is_repeatable,
    priority_of,
    timeout_of,
)
from slipway_runtime.tensors.tensor import Shape, Signature, Tensor, TensorSpec

EVENTS = "text/event-stream; charset=utf-8"
_MAX_RANK = 32


def decode_generate(body: bytes | bytearray | memoryview, signature: Signature) -> InferRequest:
    """A property with the name of an input is its value, ``id`` the request's, all others are parameters.

    Raises RequestFailure (400).
    """
    try:
        document = orjson.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid("the body is not valid JSON") from error
    if not isinstance(document, dict):
        raise invalid("the body must be a JSON object")
    inputs = tuple(_tensor(spec, document.pop(spec.name)) for spec in signature.inputs if spec.name in document)
    if not inputs:
        raise invalid("the request has no inputs")
    request_id = document.pop("id", "")
    given = document.pop("parameters", {})
    if not isinstance(request_id, str) or not isinstance(given, dict):
        raise invalid("id must be a text and parameters an object")
    parameters: Parameters = {**document, **given}
    return InferRequest(
        inputs=inputs,
        id=request_id,
        timeout=timeout_of(parameters),
        priority=priority_of(parameters),
        repeatable=is_repeatable(parameters),
        parameters=parameters,
    )


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    shape = check_shape(spec.name, _filled(_shape(spec.name, value), spec.shape), spec.datatype)
    values = value if isinstance(value, list) else [value]
    return Tensor(spec.name, spec.datatype, decode_json(spec.name, spec.datatype, shape, values))


def _shape(name: str, value: Any) -> Shape:
    """The shape of nested lists; () for a single value."""
    shape: list[int] = []
    while isinstance(value, list):
        if len(shape) == _MAX_RANK:
            raise invalid(f"input '{name}': the lists are nested too deeply")
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _filled(shape: Shape, wanted: Shape) -> Shape:
    """With dimensions of one in front, or else behind: a text, or a list of them, for an input of rows of texts."""
    ones = (1,) * (len(wanted) - len(shape))
    behind = shape + ones
    only_behind = all(map(_fits, wanted, behind)) and not all(map(_fits, wanted, ones + shape))
    return behind if only_behind else ones + shape


def _fits(wanted: int, size: int) -> bool:
    return wanted in (-1, size)


def generate_document(
    model: str, version: str, request: InferRequest, outputs: Iterable[Tensor], parameters: Parameters | None = None
) -> bytes:
    """The JSON of one answer, or of one part of it: outputs by name, a single element as a plain value.

    Raises RequestFailure (400) where JSON cannot hold an output.
    """
    document: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id:
        document["id"] = request.id
    document |= parameters or {}
    for tensor, _ in selected_outputs(request, tuple(outputs)):
        values = json_values(tensor)
        document[tensor.name] = values[0] if len(values) == 1 else values
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def event(data: bytes) -> bytes:
    """A server-sent event; JSON of ours has no line breaks in it."""
    return b"data: " + data + b"\n\n"


def failure_event(failure: RequestFailure) -> bytes:
    """The event for what goes wrong once the answer has begun."""
    return event(orjson.dumps({"error": failure.text}))


def single(parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """The only part of an answer. Raises RequestFailure (400): only one fits a plain answer."""
    if len(parts) != 1:
        raise invalid("generate is for models that answer in one part, use generate_stream for this one")
    return parts[0]
