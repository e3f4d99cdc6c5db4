"""The generate extension: a request as a plain JSON object, an answer as one, and answers as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import orjson

from slipway_runtime.protocol.answer import json_values, selected_outputs
from slipway_runtime.protocol.failures import RequestFailure, invalid
from slipway_runtime.protocol.jsondata import decode_json, read_text
from slipway_runtime.protocol.longlists import LONG, holds_more_strings
from slipway_runtime.protocol.request import (
    MAX_ELEMENTS,
    MAX_TEXTS,
    InferRequest,
    Parameters,
    check_shape,
    is_repeatable,
    priority_of,
    timeout_of,
)
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Shape, Signature, Tensor, TensorSpec

EVENTS = "text/event-stream; charset=utf-8"
_MAX_RANK = 32
_PROPERTIES = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_generate(body: bytes | bytearray | memoryview, signature: Signature) -> InferRequest:
    """A property with the name of an input is its value, ``id`` the request's, all others are parameters.

    Raises RequestFailure (400).
    """
    document = _document(body, signature)
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


def _document(body: bytes | bytearray | memoryview, signature: Signature) -> dict[str, Any]:
    """The object in the body. Of a long one, long lists of numbers are arrays, and nothing else is long but texts."""
    try:
        if len(body) < LONG:
            document = orjson.loads(body)
            if not isinstance(document, dict):
                raise invalid("the body must be a JSON object")
            return document
        properties = {name: memoryview(text) for name, text in _PROPERTIES.decode(body).items()}
        if sum(len(text) for name, text in properties.items() if signature.input(name) is None) > LONG:
            raise invalid("the parameters are too long")
        return {name: _property(signature.input(name), text) for name, text in properties.items()}
    except msgspec.ValidationError as error:
        raise invalid("the body must be a JSON object") from error
    except (ValueError, RecursionError) as error:
        raise invalid("the body is not valid JSON") from error


def _property(spec: TensorSpec | None, text: memoryview) -> Any:
    if spec is None or len(text) < LONG or bytes(text[:1]) != b"[":
        return orjson.loads(text)
    if spec.datatype is not Datatype.BYTES:
        return read_text(spec.name, spec.datatype, text, MAX_ELEMENTS)
    if holds_more_strings(text, MAX_TEXTS):
        raise invalid(f"input '{spec.name}': more than {MAX_TEXTS} elements")
    return orjson.loads(text)


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    if isinstance(value, np.ndarray):
        shape = check_shape(spec.name, _filled(value.shape, spec.shape), spec.datatype)
        return Tensor(spec.name, spec.datatype, value.astype(spec.datatype.numpy, copy=False).reshape(shape))
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
