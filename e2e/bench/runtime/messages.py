"""Requests as bytes and answers as arrays, in the formats of the servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from tritonclient.grpc import service_pb2

from e2e.bench.runtime.served.models import NUMPY, Arrays, ServedModel

_HEAD_LENGTH = "Inference-Header-Content-Length"
HEADERS = {"Content-Type": "application/json"}


def protocol_json(served: ServedModel, inputs: Arrays) -> tuple[dict[str, str], bytes]:
    """Headers and body in JSON of the Open Inference Protocol."""
    entries = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(inputs[one.name].shape),
            "data": inputs[one.name].reshape(-1).tolist(),
        }
        for one in served.inputs
    ]
    return HEADERS, orjson.dumps({"inputs": entries})


def rows_json(served: ServedModel, inputs: Arrays) -> tuple[dict[str, str], bytes]:
    """Headers and body with one nested list by name, as BentoML takes arrays."""
    return HEADERS, orjson.dumps({name: array.tolist() for name, array in inputs.items()})


def protocol_binary(served: ServedModel, inputs: Arrays) -> tuple[dict[str, str], bytes]:
    """Headers and body with binary tensors; outputs are asked for in binary as well."""
    entries = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(inputs[one.name].shape),
            "parameters": {"binary_data_size": inputs[one.name].nbytes},
        }
        for one in served.inputs
    ]
    head = orjson.dumps({"inputs": entries, "parameters": {"binary_data_output": True}})
    headers = {"Content-Type": "application/octet-stream", _HEAD_LENGTH: str(len(head))}
    return headers, head + b"".join(inputs[one.name].tobytes() for one in served.inputs)


def protocol_grpc(served: ServedModel, inputs: Arrays) -> bytes:
    """A ModelInferRequest with raw tensors."""
    request = service_pb2.ModelInferRequest(model_name="m")
    for one in served.inputs:
        array = inputs[one.name]
        request.inputs.add(name=one.name, datatype=one.datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    encoded: bytes = request.SerializeToString()
    return encoded


def read_http(headers: dict[str, str], body: bytes) -> Arrays:
    """The outputs in an answer of the protocol, JSON or binary."""
    size = int(headers.get(_HEAD_LENGTH.lower(), len(body)))
    document = orjson.loads(body[:size])
    outputs: Arrays = {}
    position = size
    for one in document["outputs"]:
        length = (one.get("parameters") or {}).get("binary_data_size")
        kind = NUMPY[one["datatype"]]
        if length is None:
            array = np.array(one["data"], dtype=kind)
        else:
            array = np.frombuffer(body, dtype=kind, count=length // np.dtype(kind).itemsize, offset=position)
            position += length
        outputs[one["name"]] = array.reshape(one["shape"])
    return outputs


def read_rows(headers: dict[str, str], body: bytes) -> Arrays:
    """The output ``y`` in an answer that is a nested list."""
    return {"y": np.array(orjson.loads(body), dtype=np.float32)}


def read_grpc(served: ServedModel, data: bytes) -> Arrays:
    """The outputs in a ModelInferResponse, raw or typed."""
    response = service_pb2.ModelInferResponse.FromString(data)
    outputs: Arrays = {}
    for index, one in enumerate(response.outputs):
        kind: Any = NUMPY[one.datatype]
        if response.raw_output_contents:
            array = np.frombuffer(response.raw_output_contents[index], dtype=kind)
        else:
            array = np.array(one.contents.fp32_contents, dtype=kind)
        outputs[one.name] = array.reshape(list(one.shape))
    return outputs
