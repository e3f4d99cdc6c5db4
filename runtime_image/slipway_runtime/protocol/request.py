"""An inference request: JSON head, binary tensors behind it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from slipway_runtime.protocol.failures import invalid
from slipway_runtime.protocol.jsondata import decode_json, decode_text
from slipway_runtime.protocol.longlists import LONG, without_tokens
from slipway_runtime.protocol.rawdata import decode_raw
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Shape, Signature, Tensor

# No tensor of a request has more elements; the product of a shape cannot overflow below it.
MAX_ELEMENTS = 2**31 - 1
MAX_RANK = 32
MAX_TENSORS = 10_000
"""Inputs of a request, and outputs that it asks for."""
MAX_TEXTS = 2**21
"""Elements of a tensor of BYTES: each is an object of its own, with ten times the bytes that it takes to send one."""
MAX_CLASSES = 100_000
_MICROSECOND = 1e-6
_LARGEST = 2**63 - 1
"""Over gRPC there is no larger number; as JSON there may be some that no float can hold."""
_SHARED_MEMORY = "shared_memory_region"
_RESERVED = "triton_"
_SCALARS = (str, bool, int, float)
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")

Parameters = dict[str, Any]


class _Input(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: Parameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Output(msgspec.Struct):
    name: str
    parameters: Parameters | None = None


class _Head(msgspec.Struct):
    inputs: list[_Input]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: list[_Output] | None = None


_DECODER = msgspec.json.Decoder(_Head)
_ABSENT = msgspec.Raw(b"")


class _LongInput(msgspec.Struct):
    shape: msgspec.Raw = _ABSENT
    parameters: msgspec.Raw = _ABSENT


class _LongOutput(msgspec.Struct):
    parameters: msgspec.Raw = _ABSENT


class _LongHead(msgspec.Struct):
    inputs: list[_LongInput] = []
    parameters: msgspec.Raw = _ABSENT
    outputs: list[_LongOutput] | None = None


_LONG_DECODER = msgspec.json.Decoder(_LongHead)


class RequestedOutput(msgspec.Struct, frozen=True):
    """An output the client asked for; ``classes`` > 0 wants the top classes instead of the tensor."""

    name: str
    binary: bool
    classes: int = 0


class InferRequest(msgspec.Struct, frozen=True, eq=False):
    """A decoded request. ``outputs`` None means all; ``timeout`` is in seconds, None for the server's."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] | None = None
    id: str = ""
    timeout: float | None = None
    binary_outputs: bool = False
    priority: int = 0
    """1 goes first, then 2 and so on; 0, none given, goes last."""
    repeatable: bool = True
    """Whether an answer that another request got may do: not within a sequence, and not against the client's wish."""
    parameters: Parameters | None = None
    """All parameters, where the model may want to see them."""

    def within(self, seconds: float | None) -> InferRequest:
        """The request with a timeout of at most ``seconds``."""
        if seconds is None or (self.timeout is not None and self.timeout <= seconds):
            return self
        return msgspec.structs.replace(self, timeout=max(seconds, _MICROSECOND))


def decode_request(body: memoryview, head_length: str | None) -> InferRequest:
    """Decode a body (already inflated). ``head_length`` is the Inference-Header-Content-Length, if sent.

    Tensors are views of ``body`` where possible. Raises RequestFailure (400) for anything malformed.
    """
    size = _head_size(head_length, len(body))
    head, values = _decode_head(body[:size])
    if not head.inputs:
        raise invalid("the request has no inputs")
    if max(len(head.inputs), len(head.outputs or ())) > MAX_TENSORS:
        raise invalid(f"a request has up to {MAX_TENSORS} inputs and outputs")
    if not head.parameters and not head.outputs:
        return InferRequest(_decode_inputs(head.inputs, values, body[size:]), id=head.id or "")
    parameters = head.parameters or {}
    check_parameters(parameters)
    binary_outputs = _flag(parameters, "binary_data_output", "the request")
    return InferRequest(
        inputs=_decode_inputs(head.inputs, values, body[size:]),
        outputs=_decode_outputs(head.outputs, binary_outputs),
        id=head.id or "",
        timeout=timeout_of(parameters),
        binary_outputs=binary_outputs,
        priority=priority_of(parameters),
        repeatable=is_repeatable(parameters),
    )


def _head_size(text: str | None, available: int) -> int:
    if text is None:
        return available
    # int() would take '+1', '1_0' and Unicode digits as well.
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > available or int(text) == 0:
        raise invalid("Inference-Header-Content-Length does not fit the body")
    return int(text)


def _decode_head(data: memoryview) -> tuple[_Head, list[Any] | None]:
    """The head; the second part holds the inputs' data where they had to be parsed along with it."""
    try:
        return _decoded(data), None
    except msgspec.ValidationError as error:
        raise invalid(f"the request is not valid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode_lenient(data)
    except RecursionError as error:
        raise invalid("the request is nested too deeply") from error


def _decoded(data: bytes | memoryview) -> _Head:
    """The head in valid JSON. Of a long one, what becomes Python objects is measured first: they are much larger."""
    if len(data) >= LONG:
        head = _LONG_DECODER.decode(data)
        size = len(memoryview(head.parameters))
        size += sum(len(memoryview(one.shape)) + len(memoryview(one.parameters)) for one in head.inputs)
        size += sum(len(memoryview(one.parameters)) for one in head.outputs or ())
        if size > LONG:
            raise invalid("the request has too long shapes and parameters")
    return _DECODER.decode(data)


def _decode_lenient(data: memoryview) -> tuple[_Head, list[Any] | None]:
    """Second chance for JSON with the tokens NaN and Infinity, which Triton's clients send."""
    if len(data) >= LONG:
        return _decode_replaced(bytes(data)), None
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise invalid("the body is not valid JSON") from error
    values: list[Any] = []
    inputs = document.get("inputs") if isinstance(document, dict) else None
    for entry in inputs if isinstance(inputs, list) else ():
        values.append(entry.pop("data", msgspec.UNSET) if isinstance(entry, dict) else msgspec.UNSET)
    try:
        msgspec.json.encode(document)
        return msgspec.convert(document, _Head), values
    except msgspec.ValidationError as error:
        raise invalid(f"the request is not valid: {error}") from error
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        # Half a surrogate pair is text to json.loads, and to nobody who would have to write it.
        raise invalid("the body is not valid JSON") from error


def _decode_replaced(data: bytes) -> _Head:
    """The same for a long text, in which JSON is put in the place of the tokens: so it can be read in pieces."""
    replaced = without_tokens(data, 2 * MAX_TEXTS)
    try:
        if replaced is not None:
            return _decoded(replaced)
    except msgspec.ValidationError as error:
        raise invalid(f"the request is not valid: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid("the body is not valid JSON") from error
    raise invalid("the body is not valid JSON")


def _decode_inputs(entries: list[_Input], values: list[Any] | None, blob: memoryview) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    seen: set[str] = set()
    position = 0
    for index, entry in enumerate(entries):
        if entry.name in seen:
            raise invalid(f"input '{entry.name}' is given twice")
        seen.add(entry.name)
        datatype = parse_datatype(entry.name, entry.datatype)
        shape = check_shape(entry.name, entry.shape, datatype)
        size = _binary_size(entry)
        if size is None:
            data = entry.data if values is None else values[index]
            array = _json_array(entry.name, datatype, shape, data)
        else:
            if size > len(blob) - position:
                raise invalid(f"input '{entry.name}': binary_data_size is larger than the data in the body")
            if entry.data is not msgspec.UNSET:
                raise invalid(f"input '{entry.name}': has both data and binary_data_size")
            array = decode_raw(entry.name, datatype, shape, blob[position : position + size])
            position += size
        tensors.append(Tensor(entry.name, datatype, array))
    if position != len(blob):
        raise invalid(f"{len(blob) - position} bytes of binary data belong to no input")
    return tuple(tensors)


def _json_array(name: str, datatype: Datatype, shape: Shape, data: Any) -> Array:
    if data is msgspec.UNSET:
        raise invalid(f"input '{name}': has neither data nor binary_data_size")
    if isinstance(data, msgspec.Raw):
        return decode_text(name, datatype, shape, data)
    return decode_json(name, datatype, shape, data)


def parse_datatype(name: str, word: str) -> Datatype:
    """The datatype of the input ``name``. Raises RequestFailure (400)."""
    try:
        return Datatype(word)
    except ValueError as error:
        raise invalid(f"input '{name}': unknown datatype") from error


def check_shape(name: str, shape: Sequence[int], datatype: Datatype) -> Shape:
    """The shape of the input ``name``, if it is one. Raises RequestFailure (400)."""
    if len(shape) > MAX_RANK or (shape and min(shape) < 0):
        raise invalid(f"input '{name}': a shape has up to {MAX_RANK} dimensions of 0 or more")
    # The largest dimension counts even when another one is 0, or reshape would overflow.
    most = MAX_TEXTS if datatype is Datatype.BYTES else MAX_ELEMENTS
    if math.prod(filter(None, shape)) > most:
        raise invalid(f"input '{name}': more than {most} elements")
    return tuple(shape)


def check_input_parameters(name: str, parameters: Parameters) -> None:
    """Refuse (400) an input that lies in shared memory."""
    if _SHARED_MEMORY in parameters:
        raise invalid(f"input '{name}': shared memory is not supported")


def _binary_size(entry: _Input) -> int | None:
    parameters = entry.parameters or {}
    check_input_parameters(entry.name, parameters)
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or size < 0:
        raise invalid(f"input '{entry.name}': binary_data_size must be a number of bytes")
    return size


def _decode_outputs(entries: list[_Output] | None, binary: bool) -> tuple[RequestedOutput, ...] | None:
    if not entries:
        return None
    outputs: list[RequestedOutput] = []
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise invalid(f"output '{entry.name}' is requested twice")
        seen.add(entry.name)
        parameters = entry.parameters or {}
        classes = requested_classes(entry.name, parameters)
        wants_binary = _flag(parameters, "binary_data", f"output '{entry.name}'", binary)
        outputs.append(RequestedOutput(entry.name, wants_binary, classes))
    return tuple(outputs)


def requested_classes(name: str, parameters: Parameters) -> int:
    """How many classes of the output ``name`` are wanted; 0 for the tensor itself. Raises RequestFailure (400)."""
    where = f"output '{name}'"
    if _SHARED_MEMORY in parameters:
        raise invalid(f"{where}: shared memory is not supported")
    classes = parameters.get("classification", 0)
    if type(classes) is not int or not 0 <= classes <= MAX_CLASSES:
        raise invalid(f"{where}: classification must be a number of classes")
    return classes


def _flag(parameters: Parameters, key: str, where: str, default: bool = False) -> bool:
    value = parameters.get(key, default)
    if type(value) is not bool:
        raise invalid(f"{where}: parameter {key} must be true or false")
    return value


def check_parameters(parameters: Parameters, known: frozenset[str] = frozenset()) -> None:
    """Refuse (400) parameters of a request that are no text, number or bool, and reserved names but ``known`` ones."""
    for name, value in parameters.items():
        if not isinstance(value, _SCALARS):
            raise invalid(f"parameter '{name}' must be a text, a number, true or false")
        if name.startswith(_RESERVED) and name not in known:
            raise invalid(f"parameter '{name}': names that start with {_RESERVED} are reserved")


def timeout_of(parameters: Parameters) -> float | None:
    """The parameter ``timeout`` is in microseconds on the wire; 0 means none."""
    value = parameters.get("timeout")
    if value is None or value == 0:
        return None
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise invalid("parameter timeout must be a number of microseconds")
    return value * _MICROSECOND


def priority_of(parameters: Parameters) -> int:
    """The parameter ``priority``; see ``InferRequest``."""
    value = parameters.get("priority", 0)
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise invalid("parameter priority must be a number of 0 or more")
    return value


def is_repeatable(parameters: Parameters) -> bool:
    """Whether parameters leave ``InferRequest.repeatable`` as it is: no sequence, and not ``cache: false``."""
    return not any(parameters.get(name) for name in _SEQUENCE) and parameters.get("cache", True) is not False


def check_against(signature: Signature, request: InferRequest) -> None:
    """Refuse (400, naming the tensor) what does not fit the model, before it joins a batch."""
    inputs = request.inputs
    for spec in signature.inputs:
        for tensor in inputs:
            if tensor.name == spec.name:
                break
        else:
            raise invalid(f"input '{spec.name}' is missing")
    rows = -1
    for tensor in inputs:
        known = signature.input(tensor.name)
        if known is None:
            raise invalid(f"unknown input '{tensor.name}'")
        reason = None if signature.open else known.mismatch(tensor)
        if reason is not None:
            raise invalid(f"input '{tensor.name}': {reason}")
        if signature.batched:
            if rows not in (-1, tensor.shape[0]):
                raise invalid(f"input '{tensor.name}': {tensor.shape[0]} rows, another input has {rows}")
            rows = tensor.shape[0]
    if request.outputs is None or signature.open:
        return
    known_outputs = {spec.name for spec in signature.outputs}
    for output in request.outputs:
        if output.name not in known_outputs:
            raise invalid(f"unknown output '{output.name}'")
