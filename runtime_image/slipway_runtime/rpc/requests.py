"""Requests of the inference service, from protobuf."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.protocol.rawdata import decode_raw
from slipway_runtime.protocol.request import (
    InferRequest,
    Parameters,
    RequestedOutput,
    check_input_parameters,
    check_shape,
    is_repeatable,
    parse_datatype,
    priority_of,
    requested_classes,
    timeout_of,
)
from slipway_runtime.rpc.wire import message, read_fields, read_varints, signed, text
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape, Tensor

FINAL_RESPONSE_WANTED = "triton_enable_empty_final_response"
_FLOAT_CONTENTS: dict[int, np.dtype[Any]] = {6: np.dtype("<f4"), 7: np.dtype("<f8")}
_SIGNED_CONTENTS = (2, 3)
_BYTES_CONTENTS = 8
_CONTENTS = {
    Datatype.BOOL: 1, Datatype.INT8: 2, Datatype.INT16: 2, Datatype.INT32: 2, Datatype.INT64: 3,
    Datatype.UINT8: 4, Datatype.UINT16: 4, Datatype.UINT32: 4, Datatype.UINT64: 5,
    Datatype.FP32: 6, Datatype.FP64: 7, Datatype.BYTES: 8,
}  # fmt: skip
"""The field of InferTensorContents that carries a datatype; FP16 and BF16 exist as raw data only."""


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """``ModelInferRequest``. ``final_flag``: the client wants to be told which response is the last one."""

    model: str
    version: str
    request: InferRequest
    final_flag: bool = False


@dataclass(slots=True)
class _Input:
    name: str = ""
    datatype: str = ""
    shape: list[int] = field(default_factory=list)
    parameters: Parameters = field(default_factory=dict)
    contents: memoryview | None = None


@dataclass(slots=True)
class _Message:
    model: str = ""
    version: str = ""
    id: str = ""
    parameters: Parameters = field(default_factory=dict)
    inputs: list[_Input] = field(default_factory=list)
    outputs: list[tuple[str, Parameters]] = field(default_factory=list)
    raw: list[memoryview] = field(default_factory=list)


def decode_infer(data: memoryview) -> RpcRequest:
    """Decode ``ModelInferRequest``; tensors are views of ``data`` where possible. Raises RequestFailure (400)."""
    read = _read(data)
    if not read.inputs:
        raise invalid("the request has no inputs")
    if len({one.name for one in read.inputs}) != len(read.inputs):
        raise invalid("an input is given twice")
    if read.raw and len(read.raw) != len(read.inputs):
        raise invalid(f"{len(read.raw)} raw_input_contents for {len(read.inputs)} inputs")
    raw: list[memoryview | None] = [*read.raw] if read.raw else [None] * len(read.inputs)
    request = InferRequest(
        inputs=tuple(_tensor(one, data_) for one, data_ in zip(read.inputs, raw, strict=True)),
        outputs=_outputs(read.outputs),
        id=read.id,
        timeout=timeout_of(read.parameters),
        binary_outputs=True,
        priority=priority_of(read.parameters),
        repeatable=not read.parameters or is_repeatable(read.parameters),
        parameters=read.parameters,
    )
    return RpcRequest(read.model, read.version, request, read.parameters.get(FINAL_RESPONSE_WANTED) is True)


def request_id(data: bytes) -> str:
    """The id of a request that may be damaged otherwise; empty where it cannot be read."""
    try:
        return next((text(value) for number, _, value in read_fields(memoryview(data)) if number == 3), "")
    except Exception:
        return ""


def named(data: bytes, name_field: int = 1, version_field: int = 2) -> tuple[str, str]:
    """Name and version in the small requests."""
    name = version = ""
    for number, _, value in read_fields(memoryview(data)):
        if number == name_field:
            name = text(value)
        elif number == version_field:
            version = text(value)
    return name, version


def wants_ready_only(data: bytes) -> bool:
    """``ready`` of a repository index request."""
    return any(number == 2 and value == 1 for number, _, value in read_fields(memoryview(data)))


def model_change(data: bytes) -> tuple[str, dict[str, Any]]:
    """Name and parameters of a request to load or unload a model; contents of files stay bytes."""
    name = ""
    parameters: dict[str, Any] = {}
    for number, _, value in read_fields(memoryview(data)):
        if number == 2:
            name = text(value)
        elif number == 3:
            key, parameter = "", None
            for part, _, content in read_fields(message(value)):
                if part == 1:
                    key = text(content)
                else:
                    parameter = _repository_parameter(message(content))
            parameters[key] = parameter
    return name, parameters


def _repository_parameter(data: memoryview) -> Any:
    for kind, _, content in read_fields(data):
        if isinstance(content, memoryview):
            return text(content) if kind == 3 else bytes(content)
        return bool(content) if kind == 1 else signed(content)
    return None


def settings_of(data: bytes) -> dict[str, Any]:
    """The settings that a trace or log request wants changed: strings, lists of strings, booleans and numbers."""
    found: dict[str, Any] = {}
    for number, _, value in read_fields(memoryview(data)):
        if number == 1:
            name, setting = "", memoryview(b"")
            for part, _, content in read_fields(message(value)):
                name, setting = (text(content), setting) if part == 1 else (name, message(content))
            found[name] = [
                text(content) if isinstance(content, memoryview) else content for _, _, content in read_fields(setting)
            ]
    return found


def _read(data: memoryview) -> _Message:
    read = _Message()
    for number, _, value in read_fields(data):
        match number:
            case 1:
                read.model = text(value)
            case 2:
                read.version = text(value)
            case 3:
                read.id = text(value)
            case 4:
                read.parameters.update([_parameter(message(value))])
            case 5:
                read.inputs.append(_read_input(message(value)))
            case 6:
                read.outputs.append(_read_output(message(value)))
            case 7:
                read.raw.append(message(value))
    return read


def _read_input(data: memoryview) -> _Input:
    read = _Input()
    for number, kind, value in read_fields(data):
        match number:
            case 1:
                read.name = text(value)
            case 2:
                read.datatype = text(value)
            case 3:
                read.shape += [signed(size) for size in read_varints(kind, value)]
            case 4:
                read.parameters.update([_parameter(message(value))])
            case 5:
                read.contents = message(value)
    return read


def _read_output(data: memoryview) -> tuple[str, Parameters]:
    name = ""
    parameters: Parameters = {}
    for number, _, value in read_fields(data):
        if number == 1:
            name = text(value)
        elif number == 2:
            parameters.update([_parameter(message(value))])
    return name, parameters


def _parameter(entry: memoryview) -> tuple[str, Any]:
    """An entry of a map of InferParameter."""
    name: str = ""
    parameter: Any = None
    for number, _, value in read_fields(entry):
        if number == 1:
            name = text(value)
        elif number == 2:
            for kind, _, content in read_fields(message(value)):
                parameter = _parameter_value(kind, content)
    return name, parameter


def _parameter_value(kind: int, content: int | memoryview) -> Any:
    if isinstance(content, memoryview):
        return struct.unpack("<d", content)[0] if kind == 4 and len(content) == 8 else text(content)
    return bool(content) if kind == 1 else signed(content) if kind == 2 else content


def _tensor(read: _Input, raw: memoryview | None) -> Tensor:
    check_input_parameters(read.name, read.parameters)
    datatype, shape = parse_datatype(read.name, read.datatype), check_shape(read.name, read.shape)
    if raw is None:
        return Tensor(read.name, datatype, _typed(read, datatype, shape))
    if read.contents is not None:
        raise invalid(f"input '{read.name}': has both contents and raw_input_contents")
    return Tensor(read.name, datatype, decode_raw(read.name, datatype, shape, raw))


def _typed(read: _Input, datatype: Datatype, shape: Shape) -> Array:
    """The tensor in ``contents``; an absent one is an empty tensor."""
    number = _CONTENTS.get(datatype)
    if number is None:
        raise invalid(f"input '{read.name}': {datatype} has no typed contents, send raw_input_contents")
    fields = list(read_fields(read.contents if read.contents is not None else memoryview(b"")))
    if any(found != number for found, _, _ in fields):
        raise invalid(f"input '{read.name}': the contents are not those of {datatype}")
    array = _values(read.name, datatype, number, fields)
    if array.size != int(np.prod(shape, dtype=object)):
        raise invalid(f"input '{read.name}': {array.size} elements do not fill shape {list(shape)}")
    return array.reshape(shape)


def _values(name: str, datatype: Datatype, number: int, fields: list[Any]) -> Array:
    if number == _BYTES_CONTENTS:
        elements = np.empty(len(fields), dtype=object)
        elements[:] = [bytes(message(value)) for _, _, value in fields]
        return elements
    if number in _FLOAT_CONTENTS:
        dtype = _FLOAT_CONTENTS[number]
        data = b"".join(message(value) for _, _, value in fields)
        if len(data) % dtype.itemsize:
            raise invalid(f"input '{name}': the contents are cut off")
        return np.frombuffer(data, dtype=dtype)
    numbers = [one for _, kind, value in fields for one in read_varints(kind, value)]
    if number in _SIGNED_CONTENTS:
        numbers = [signed(one) for one in numbers]
    if datatype is Datatype.BOOL:
        return np.array([one != 0 for one in numbers], dtype=bool)
    limits = np.iinfo(datatype.numpy)
    if any(not limits.min <= one <= limits.max for one in numbers):
        raise invalid(f"input '{name}': the data holds values out of the range of {datatype}")
    return np.array(numbers, dtype=datatype.numpy)


def _outputs(entries: list[tuple[str, Parameters]]) -> tuple[RequestedOutput, ...] | None:
    if not entries:
        return None
    if len({name for name, _ in entries}) != len(entries):
        raise invalid("an output is requested twice")
    return tuple(RequestedOutput(name, True, requested_classes(name, parameters)) for name, parameters in entries)
