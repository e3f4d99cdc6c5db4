"""An inference answer: outputs as JSON or as binary data behind the JSON head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
import numpy as np
import orjson

from slipway_runtime.protocol.failures import RequestFailure, invalid
from slipway_runtime.protocol.rawdata import encode_raw
from slipway_runtime.protocol.request import InferRequest, RequestedOutput
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Signature, Tensor

JSON = "application/json"
BINARY = "application/octet-stream"
HEAD_LENGTH = "Inference-Header-Content-Length"

Header = tuple[str, str]


class Answer(msgspec.Struct, frozen=True, eq=False):
    """An HTTP answer without its framing: ``body`` in parts, so that tensors need no copying."""

    status: HTTPStatus = HTTPStatus.OK
    body: tuple[bytes | memoryview, ...] = ()
    content_type: str = JSON
    headers: tuple[Header, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(len(part) for part in self.body)

    def with_headers(self, headers: tuple[Header, ...]) -> Answer:
        """The same with more headers."""
        return Answer(self.status, self.body, self.content_type, (*self.headers, *headers))


def json_answer(document: Any, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    """An answer with a JSON document."""
    return Answer(status, (orjson.dumps(document),))


def failure_answer(failure: RequestFailure) -> Answer:
    """``{"error": text}``, the only form of error that clients of the protocol can read."""
    headers = failure.headers
    if failure.retry_after is not None:
        headers = (*headers, ("Retry-After", str(failure.retry_after)))
    return Answer(failure.status, (orjson.dumps({"error": failure.text}),), JSON, headers)


def infer_answer(
    model: str, version: str, request: InferRequest, outputs: Sequence[Tensor], signature: Signature
) -> Answer:
    """The 200 answer to ``request``. Raises RequestFailure (400) where JSON cannot hold an output."""
    entries: list[dict[str, Any]] = []
    blobs: list[memoryview] = []
    for tensor, wanted in selected_outputs(request, outputs):
        chosen = top_classes(tensor, wanted.classes, signature.batched) if wanted.classes else tensor
        entry: dict[str, Any] = {"name": chosen.name, "datatype": chosen.datatype, "shape": chosen.shape}
        if wanted.binary:
            blob = encode_raw(chosen.datatype, chosen.array)
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = json_values(chosen)
        entries.append(entry)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id:
        head["id"] = request.id
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(entry.get("parameters") for entry in entries):
        return Answer(HTTPStatus.OK, (text,))
    filled = tuple(blob for blob in blobs if len(blob))
    return Answer(HTTPStatus.OK, (text, *filled), BINARY, ((HEAD_LENGTH, str(len(text))),))


def selected_outputs(request: InferRequest, outputs: Sequence[Tensor]) -> Iterable[tuple[Tensor, RequestedOutput]]:
    """The outputs a client wants, each with how it wants it. Raises RequestFailure (400) for an unknown one."""
    if request.outputs is None:
        return [(tensor, RequestedOutput(tensor.name, request.binary_outputs)) for tensor in outputs]
    by_name = {tensor.name: tensor for tensor in outputs}
    missing = [wanted.name for wanted in request.outputs if wanted.name not in by_name]
    if missing:
        raise invalid(f"unknown output '{missing[0]}'")
    return [(by_name[wanted.name], wanted) for wanted in request.outputs]


def json_values(tensor: Tensor) -> Array | list[str]:
    """The elements, flat and row-major. NaN and infinities become null (orjson's rule), which clients read as NaN.

    Raises RequestFailure (400) for what JSON cannot hold.
    """
    if tensor.datatype is Datatype.BYTES:
        try:
            return [element.decode() for element in tensor.array.reshape(-1).tolist()]
        except UnicodeDecodeError as error:
            raise invalid(f"output '{tensor.name}' is not UTF-8 text, request it as binary data") from error
    if not tensor.datatype.has_json_form:
        raise invalid(f"output '{tensor.name}' is {tensor.datatype}, which has no JSON form: request binary data")
    return np.ascontiguousarray(tensor.array).reshape(-1)


def top_classes(tensor: Tensor, count: int, batched: bool) -> Tensor:
    """The classification extension: ``value:index`` of the ``count`` largest values, per row if batched."""
    if tensor.datatype in (Datatype.BYTES, Datatype.BF16):
        raise invalid(f"output '{tensor.name}': classification needs a numeric output")
    array = tensor.array
    rows = array.shape[0] if batched else 1
    values = array.reshape(rows, math.prod(array.shape[1:]) if batched else array.size)
    order = np.argsort(-values.astype(np.float64), axis=1, kind="stable")[:, :count]
    picked = np.take_along_axis(values, order, axis=1)
    labels = np.empty(order.shape, dtype=object)
    for position in np.ndindex(order.shape):
        labels[position] = f"{picked[position]:f}:{order[position]}".encode()
    return Tensor(tensor.name, Datatype.BYTES, labels if batched else labels.reshape(-1))
