"""Requests of the inference service, from protobuf."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.protocol.rawdata import decode_raw
from slipway_runtime.protocol.request import (
    MAX_RANK,
    MAX_TENSORS,
    MAX_TEXTS,
    InferRequest,
    Parameters,
    RequestedOutput,
    check_input_parameters,
    check_parameters,
    check_shape,
    is_repeatable,
    parse_datatype,
    priority_of,
    requested_classes,
    timeout_of,
)
from slipway_runtime.rpc.wire import (
    DELIMITED,
    MAX_FIELDS,
    Allowance,
    Field,
    Numbers,
    count_varints,
    message,
    packed_varints,
    read_fields,
    read_varints,
    signed,
    text,
)
from slipway_runtime.serving.budget import bytes_of
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape, Tensor

FINAL_RESPONSE_WANTED = "triton_enable_empty_final_response"
_KNOWN = frozenset({FINAL_RESPONSE_WANTED})
_FLOAT_CONTENTS = (6, 7)
_SIGNED_CONTENTS = (2, 3)
# Tensors larger than this, in bytes, take milliseconds to read where their elements have to be looked at.
_LARGE = 256 * 1024
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
    size: int = 0
    """Bytes that the tensors take besides those of the message."""


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


class Undecoded:
    """A ``ModelInferRequest`` whose tensors are still to be read. Raises RequestFailure (400)."""

    def __init__(self, data: memoryview) -> None:
        self._message = _read(data)

    @property
    def heavy(self) -> bool:
        """Whether reading it takes so long that it belongs in a thread."""
        read = self._message
        if any(one.contents is not None and len(one.contents) > _LARGE for one in read.inputs):
            return True
        texts = any(one.datatype == Datatype.BYTES for one in read.inputs)
        return texts and any(len(blob) > _LARGE for blob in read.raw)

    def decode(self) -> RpcRequest:
        """The request; tensors are views of its bytes where possible. Raises RequestFailure (400)."""
        return _decoded(self._message)


def _decoded(read: _Message) -> RpcRequest:
    if not read.inputs:
        raise invalid("the request has no inputs")
    if len({one.name for one in read.inputs}) != len(read.inputs):
        raise invalid("an input is given twice")
    if read.raw and len(read.raw) != len(read.inputs):
        raise invalid(f"{len(read.raw)} raw_input_contents for {len(read.inputs)} inputs")
    check_parameters(read.parameters, _KNOWN)
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
    final = read.parameters.get(FINAL_RESPONSE_WANTED) is True
    return RpcRequest(read.model, read.version, request, final, _size(read, request))


def _size(read: _Message, request: InferRequest) -> int:
    """Raw numbers lie in the message; others, and all texts, were copied out of it."""
    numbers, texts = bytes_of(request.inputs)
    if texts:
        copied = read.raw or [one.contents or memoryview(b"") for one in read.inputs]
        texts += sum(len(part) for one, part in zip(read.inputs, copied, strict=True) if one.datatype == Datatype.BYTES)
    return texts if read.raw else numbers + texts


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
    allowance = Allowance()
    for number, _, value in read_fields(data, allowance):
        match number:
            case 1:
                read.model = text(value)
            case 2:
                read.version = text(value)
            case 3:
                read.id = text(value)
            case 4:
                read.parameters.update([_parameter(message(value), allowance)])
            case 5:
                read.inputs.append(_read_input(message(value), allowance))
            case 6:
                read.outputs.append(_read_output(message(value), allowance))
            case 7:
                read.raw.append(message(value))
    if max(len(read.inputs), len(read.outputs)) > MAX_TENSORS:
        raise invalid(f"a request has up to {MAX_TENSORS} inputs and outputs")
    return read


def _read_input(data: memoryview, allowance: Allowance) -> _Input:
    read = _Input()
    for number, kind, value in read_fields(data, allowance):
        match number:
            case 1:
                read.name = text(value)
            case 2:
                read.datatype = text(value)
            case 3:
                # One more than there may be, so that it is noticed.
                read.shape += map(signed, islice(read_varints(kind, value), MAX_RANK + 1))
            case 4:
                read.parameters.update([_parameter(message(value), allowance)])
            case 5:
                read.contents = message(value)
    return read


def _read_output(data: memoryview, allowance: Allowance) -> tuple[str, Parameters]:
    name = ""
    parameters: Parameters = {}
    for number, _, value in read_fields(data, allowance):
        if number == 1:
            name = text(value)
        elif number == 2:
            parameters.update([_parameter(message(value), allowance)])
    return name, parameters


def _parameter(entry: memoryview, allowance: Allowance) -> tuple[str, Any]:
    """An entry of a map of InferParameter."""
    name: str = ""
    parameter: Any = None
    for number, _, value in read_fields(entry, allowance):
        if number == 1:
            name = text(value)
        elif number == 2:
            for kind, _, content in read_fields(message(value), allowance):
                parameter = _parameter_value(kind, content)
    return name, parameter


def _parameter_value(kind: int, content: int | memoryview) -> Any:
    if isinstance(content, memoryview):
        return struct.unpack("<d", content)[0] if kind == 4 and len(content) == 8 else text(content)
    return bool(content) if kind == 1 else signed(content) if kind == 2 else content


def _tensor(read: _Input, raw: memoryview | None) -> Tensor:
    check_input_parameters(read.name, read.parameters)
    datatype = parse_datatype(read.name, read.datatype)
    shape = check_shape(read.name, read.shape, datatype)
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
    contents = read.contents if read.contents is not None else memoryview(b"")
    array = _texts if datatype is Datatype.BYTES else _floats if number in _FLOAT_CONTENTS else _integers
    return array(read.name, datatype, contents, shape).reshape(shape)


def _own_fields(name: str, contents: memoryview, datatype: Datatype, most: int) -> Iterator[Field]:
    """The fields of ``contents``, which all have to be those of one datatype."""
    number = _CONTENTS[datatype]
    for found in read_fields(contents, Allowance(most)):
        if found[0] != number:
            raise invalid(f"input '{name}': the contents are not those of {datatype}")
        yield found


def _texts(name: str, datatype: Datatype, contents: memoryview, shape: Shape) -> Array:
    elements = [bytes(message(value)) for _, _, value in _own_fields(name, contents, datatype, MAX_TEXTS)]
    _check_count(name, len(elements), shape)
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def _floats(name: str, datatype: Datatype, contents: memoryview, shape: Shape) -> Array:
    dtype = datatype.numpy
    data = b"".join(message(value) for _, _, value in _own_fields(name, contents, datatype, MAX_FIELDS))
    if len(data) % dtype.itemsize:
        raise invalid(f"input '{name}': the contents are cut off")
    _check_count(name, len(data) // dtype.itemsize, shape)
    return np.frombuffer(data, dtype=dtype)


def _integers(name: str, datatype: Datatype, contents: memoryview, shape: Shape) -> Array:
    fields = list(_own_fields(name, contents, datatype, MAX_FIELDS))
    # Counted before anything is allocated: a number takes up to eight times as much memory as it takes here.
    count = sum(1 if isinstance(value, int) else count_varints(value) for _, _, value in fields)
    _check_count(name, count, shape)
    array: Array = np.empty(count, dtype=datatype.numpy)
    position = 0
    for _, kind, value in fields:
        for part in _parts(kind, value):
            array[position : position + len(part)] = _converted(name, datatype, part)
            position += len(part)
    return array


def _parts(kind: int, value: int | memoryview) -> Iterable[Numbers]:
    if isinstance(value, int):
        return [np.array([value], dtype=np.uint64)]
    if kind != DELIMITED:
        raise invalid("the message is not a valid protobuf of this service")
    return packed_varints(value)


def _converted(name: str, datatype: Datatype, part: Numbers) -> Array:
    if datatype is Datatype.BOOL:
        return np.not_equal(part, 0)
    numbers = part.view(np.int64) if _CONTENTS[datatype] in _SIGNED_CONTENTS else part
    limits = np.iinfo(datatype.numpy)
    if len(numbers) and not (limits.min <= int(numbers.min()) and int(numbers.max()) <= limits.max):
        raise invalid(f"input '{name}': the data holds values out of the range of {datatype}")
    return numbers.astype(datatype.numpy)


def _check_count(name: str, count: int, shape: Shape) -> None:
    if count != math.prod(shape):
        raise invalid(f"input '{name}': {count} elements do not fill shape {list(shape)}")


def _outputs(entries: list[tuple[str, Parameters]]) -> tuple[RequestedOutput, ...] | None:
    if not entries:
        return None
    if len({name for name, _ in entries}) != len(entries):
        raise invalid("an output is requested twice")
    return tuple(RequestedOutput(name, True, requested_classes(name, parameters)) for name, parameters in entries)
