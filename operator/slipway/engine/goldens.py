"""Goldens: requests with known answers, from a ConfigMap's text to the comparison with an answer."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.http import InferInput, InferResult
from tritonclient.utils import triton_to_np_dtype

from slipway.api.versions import Tolerance

__all__ = ["Golden", "GoldensError", "difference", "digest_of", "parse_goldens", "request_inputs"]

Array = NDArray[Any]

_FLOATS = frozenset({"FP16", "FP32", "FP64", "BF16"})
MOST_GOLDENS = 1000


class GoldensError(ValueError):
    """The goldens themselves are not what they should be."""


@dataclass(frozen=True, slots=True)
class Golden:
    """One request and its answer, in the JSON of the Open Inference Protocol."""

    label: str
    """Where it stands, such as ``smoke.json[2]``."""
    inputs: tuple[Mapping[str, Any], ...]
    outputs: tuple[Mapping[str, Any], ...]
    parameters: Mapping[str, Any]


def digest_of(goldens: Mapping[str, str] | None) -> str:
    """Identity of a ConfigMap's text; empty for none."""
    if goldens is None:
        return ""
    return hashlib.sha256(json.dumps(dict(goldens), sort_keys=True).encode()).hexdigest()


def parse_goldens(texts: Mapping[str, str]) -> tuple[Golden, ...]:
    """All goldens of a ConfigMap, by key and place; raises GoldensError where one is not in the expected form."""
    found = [golden for key in sorted(texts) for golden in _parse_document(key, texts[key])]
    if not found:
        raise GoldensError("the ConfigMap holds no goldens")
    if len(found) > MOST_GOLDENS:
        raise GoldensError(f"the ConfigMap holds {len(found)} goldens; at most {MOST_GOLDENS} are checked")
    return tuple(found)


def _parse_document(key: str, text: str) -> list[Golden]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GoldensError(f"{key} is no JSON: {error}") from error
    if not isinstance(document, list):
        raise GoldensError(f"{key} is no list of {{request, response}}")
    return [_parse_golden(f"{key}[{index}]", entry) for index, entry in enumerate(document)]


def _parse_golden(label: str, entry: Any) -> Golden:
    if not isinstance(entry, dict):
        raise GoldensError(f"{label} is no object with request and response")
    request, response = entry.get("request"), entry.get("response")
    if not isinstance(request, dict) or not isinstance(response, dict):
        raise GoldensError(f"{label} needs a request and a response")
    parameters = request.get("parameters") or {}
    golden = Golden(label, _tensors(label, request, "inputs"), _tensors(label, response, "outputs"), parameters)
    if not isinstance(parameters, dict):
        raise GoldensError(f"{label}: parameters are no object")
    for tensor in golden.inputs:
        array_of(label, tensor)
    return golden


def _tensors(label: str, document: Mapping[str, Any], field: str) -> tuple[Mapping[str, Any], ...]:
    tensors = document.get(field)
    if not isinstance(tensors, list) or not tensors:
        raise GoldensError(f"{label} has no {field}")
    for tensor in tensors:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str) or "data" not in tensor:
            raise GoldensError(f"{label}: each of the {field} needs name and data")
    return tuple(tensors)


def array_of(label: str, tensor: Mapping[str, Any]) -> Array:
    """The tensor's data as an array; raises GoldensError where datatype, shape and data do not go together."""
    dtype = triton_to_np_dtype(str(tensor.get("datatype", "")))
    if dtype is None:
        raise GoldensError(f"{label}: {tensor['name']} has no datatype of the Open Inference Protocol")
    try:
        array: Array = np.array(tensor["data"], dtype=dtype)
        return array.reshape(tensor.get("shape", array.shape))
    except (ValueError, TypeError, OverflowError) as error:
        raise GoldensError(f"{label}: {tensor['name']}: {error}") from error


def request_inputs(golden: Golden) -> list[InferInput]:
    """The request in tritonclient's form, with binary data, which every datatype has."""
    inputs = []
    for tensor in golden.inputs:
        array = array_of(golden.label, tensor)
        entry = InferInput(tensor["name"], list(array.shape), tensor["datatype"])
        entry.set_data_from_numpy(array)
        inputs.append(entry)
    return inputs


def difference(golden: Golden, result: InferResult, tolerance: Tolerance) -> str:
    """How an answer differs from the golden one, in words; empty when it does not.

    Floating-point outputs may differ by ``atol + rtol * |expected|``, NaN equals NaN; others must be equal.
    Raises what numpy and tritonclient raise for an answer that is no answer.
    """
    for expected in golden.outputs:
        name = expected["name"]
        described = result.get_output(name)
        answer = result.as_numpy(name)
        if described is None or answer is None:
            return f"{golden.label}: output {name} is missing"
        datatype = str(described["datatype"])
        if expected.get("datatype", datatype) != datatype:
            return f"{golden.label}: output {name} has datatype {datatype} instead of {expected['datatype']}"
        wanted = array_of(golden.label, {**expected, "datatype": datatype})
        if "shape" not in expected and wanted.size == answer.size:
            wanted = wanted.reshape(answer.shape)
        if wanted.shape != answer.shape:
            return f"{golden.label}: output {name} has shape {list(answer.shape)} instead of {list(wanted.shape)}"
        text = _values_differ(datatype, wanted, answer, tolerance)
        if text:
            return f"{golden.label}: output {name} {text}"
    return ""


def _values_differ(datatype: str, wanted: Array, answer: Array, tolerance: Tolerance) -> str:
    if datatype in _FLOATS:
        left, right = answer.astype(np.float64), wanted.astype(np.float64)
        equal = np.isclose(left, right, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)
    elif datatype == "BYTES":
        left, right = _as_bytes(answer), _as_bytes(wanted)
        equal = left == right
    else:
        left, right = answer, wanted
        equal = left == right
    wrong = np.flatnonzero(~np.asarray(equal, dtype=bool))
    if not wrong.size:
        return ""
    first = int(wrong[0])
    shown = str(left.flat[first])[:60], str(right.flat[first])[:60]
    return f"differs in {wrong.size} of {wanted.size} values; value {first} is {shown[0]} instead of {shown[1]}"


def _as_bytes(array: Array) -> Array:
    """Text as UTF-8: answers carry bytes where goldens carry text."""
    values = [value.encode() if isinstance(value, str) else value for value in array.flat]
    result = np.empty(len(values), dtype=np.object_)
    result[:] = values
    return result.reshape(array.shape)
