"""When two servers answer alike: the same class of status, the same tensors, the same facts about the model.

Where the runtime is meant to answer otherwise, ``DIFFERENCES`` says how and why; the numbers are those of the cases
that the tests pin (tests/cases.md). A difference that is not there any more is a fault, too: the list must stay true.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2 as messages

Document = dict[str, Any]
GONE = "gone"
"""The status of an answer that never came: the server hung up (or died)."""
_HEAD_LENGTH = "inference-header-content-length"


@dataclass(frozen=True)
class Answer:
    """What a server said: an HTTP status, or the name of a gRPC code."""

    status: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def of_json(cls, record: Document) -> Answer:
        """As it was recorded."""
        return cls(record["status"], record.get("headers", {}), base64.b64decode(record.get("body", "")))

    def as_json(self) -> Document:
        """For a record; only the headers that matter."""
        kept = {name: value for name, value in self.headers.items() if name in (_HEAD_LENGTH, "content-encoding")}
        return {"status": self.status, "headers": kept, "body": base64.b64encode(self.body).decode()}


_GRPC_CLASSES = {
    "OK": "2xx",
    "INVALID_ARGUMENT": "4xx",
    "NOT_FOUND": "4xx",
    "ALREADY_EXISTS": "4xx",
    "RESOURCE_EXHAUSTED": "4xx",
    "OUT_OF_RANGE": "4xx",
    "FAILED_PRECONDITION": "4xx",
    "PERMISSION_DENIED": "4xx",
}


def status_class(status: str) -> str:
    """``2xx`` and so on; gRPC's codes belong to the class of the HTTP status they stand for."""
    return f"{status[0]}xx" if status.isdigit() else _GRPC_CLASSES.get(status, "5xx")


_TOLD = "1.8: what the client got wrong is told as the client's error, Triton says 500"
_REFUSED_NAMES = (
    "not JSON", "a JSON list", "a JSON number", "inputs missing", "inputs of the wrong type", "not UTF-8",
    "datatype missing", "negative shape", "shape of floats", "shape missing", "too few elements", "too many elements",
    "a string among numbers", "a bool among numbers", "a float among integers", "a negative UINT64",
    "a number among bools", "a number among strings", "data of no list", "head length 1", "binary size negative",
    "binary size a string", "input without a name", "binary_data of no bool", "a number as id",
    "log settings that are none", "trace settings that are none",
)  # fmt: skip
DIFFERENCES: dict[str, tuple[str, str]] = {
    **{f"http: {name}": ("4xx", _TOLD) for name in _REFUSED_NAMES},
    "http: huge shape": ("4xx", "V4: a negative or huge shape is refused; Triton 2.51 dies of it"),
    "http: null among numbers": ("2xx", "V1: null among the numbers of a float tensor is NaN"),
    "http: INT8 out of range": ("4xx", "V16: out of range is refused; Triton wraps it round"),
    "http: more rows than a batch holds": ("2xx", "B12: more rows than a batch holds run in parts"),
    "http: BYTES that are no text, wanted as JSON": ("4xx", "V15: bytes that are no text have no JSON form"),
    "http: gzip cut off": ("4xx", "V18: a body that is cut off is refused; Triton takes what came"),
    "http: unknown coding": ("4xx", "1.8: 415; Triton says 501"),
    "http: output twice": ("4xx", "V14: an output wanted twice is refused, naming it"),
    "http: an unknown log setting": ("4xx", "1.8: a setting that does not exist is refused; Triton ignores it"),
    "http: load of an unknown model": ("4xx", "S11: loading is refused where it was not allowed; Triton says 500"),
    "http: unload of an unknown model": ("4xx", "S11: unloading is refused where it was not allowed"),
    "grpc: RepositoryModelLoad of an unknown model": ("4xx", "S11: as over HTTP"),
    "grpc: RepositoryModelUnload of an unknown model": ("4xx", "S11: as over HTTP"),
    "grpc: more raw entries than inputs": ("4xx", "V16: one raw entry for each input; Triton ignores what is too much"),
    "grpc: not a message": ("4xx", _TOLD),
}
"""By kind and name of the request: the class of status that the runtime answers with instead, and why."""


def differences(name: str, theirs: Answer, ours: Answer) -> list[str]:
    """What is not alike and should be; empty when all is well."""
    found = []
    their_class, our_class = status_class(theirs.status), status_class(ours.status)
    meant = DIFFERENCES.get(name)
    if meant is not None:
        if their_class == meant[0]:
            found.append(f"is listed as a difference, but Triton answers {theirs.status} as well")
        if our_class != meant[0]:
            found.append(f"answers {ours.status}, meant is {meant[0]} ({meant[1]})")
    elif their_class != our_class:
        found.append(f"answers {ours.status}, Triton {theirs.status}")
    if not found and their_class == our_class == "2xx":
        found += _unlike_contents(name, theirs, ours)
    if ours.status.isdigit() and our_class in ("4xx", "5xx") and ours.body:
        found += _unreadable_error(ours)
    return found


def _unreadable_error(ours: Answer) -> list[str]:
    try:
        document = json.loads(ours.body)
    except ValueError:
        return ["the error is no JSON"]
    good = isinstance(document, dict) and isinstance(document.get("error"), str)
    return [] if good else ["the error is no object with the key 'error'"]


def _unlike_contents(name: str, theirs: Answer, ours: Answer) -> list[str]:
    read = _grpc_facts if not ours.status.isdigit() else _http_facts
    wanted, given = read(name, theirs), read(name, ours)
    if wanted == given:
        return []
    keys = sorted(key for key in {*wanted, *given} if wanted.get(key) != given.get(key))
    return [f"{key}: {given.get(key)!r}, Triton's is {wanted.get(key)!r}" for key in keys]


def _http_facts(name: str, answer: Answer) -> Document:
    """What must be equal of an answer over HTTP; outputs as names with their tensors."""
    if not answer.body:
        return {}
    if answer.headers.get("content-encoding"):
        return {"encoding": answer.headers["content-encoding"]}
    size = int(answer.headers.get(_HEAD_LENGTH, len(answer.body)))
    document = json.loads(answer.body[:size])
    if isinstance(document, list):
        return {"entries": [{key: one.get(key) for key in ("name", "version", "state")} for one in document]}
    if "outputs" in document and "model_name" in document:
        return _outputs(document, answer.body[size:])
    kept = {key: document[key] for key in ("versions", "inputs", "outputs", "max_batch_size") if key in document}
    if "input" in document:
        for side in ("input", "output"):
            kept[side] = [
                [one["name"], one["data_type"], [int(size) for size in one["dims"]]] for one in document[side]
            ]
    if "model_stats" in document:
        kept["stats of"] = [[one["name"], one["version"]] for one in document["model_stats"]]
    return kept


def _outputs(document: Document, blob: bytes) -> Document:
    facts: Document = {key: document.get(key) for key in ("model_name", "model_version", "id")}
    position = 0
    for one in document["outputs"]:
        size = (one.get("parameters") or {}).get("binary_data_size")
        if size is None:
            data: Any = repr(_finite(one["data"]))
        else:
            data = blob[position : position + size].hex()
            position += size
        facts[one["name"]] = [one["datatype"], one["shape"], data]
    return facts


def _finite(data: list[Any]) -> list[Any]:
    """Triton writes NaN and the infinities as words that are no JSON, the runtime writes null: cases V1."""
    return [None if isinstance(one, float) and not -1e308 < one < 1e308 else one for one in data]


_RESPONSES = {
    "ModelReady": messages.ModelReadyResponse,
    "ServerLive": messages.ServerLiveResponse,
    "ServerReady": messages.ServerReadyResponse,
}


_UNLIKE = frozenset(
    {"ServerMetadata", "SystemSharedMemoryStatus", "CudaSharedMemoryStatus", "TraceSetting", "LogSettings"}
)
"""Methods whose answers tell of the server itself."""


def _grpc_facts(name: str, answer: Answer) -> Document:
    """What must be equal of an answer over gRPC."""
    method = name.removeprefix("grpc: ").partition(" ")[0]
    if method in _RESPONSES:
        return {"answer": str(_RESPONSES[method].FromString(answer.body))}
    if method == "ModelMetadata":
        metadata = messages.ModelMetadataResponse.FromString(answer.body)
        ports = [[one.name, one.datatype, list(one.shape)] for one in (*metadata.inputs, *metadata.outputs)]
        return {"name": metadata.name, "versions": list(metadata.versions), "ports": ports}
    if method == "ModelConfig":
        config = messages.ModelConfigResponse.FromString(answer.body).config
        ports = [[one.name, one.data_type, list(one.dims)] for one in (*config.input, *config.output)]
        return {"name": config.name, "rows": config.max_batch_size, "ports": ports}
    if method == "ModelStatistics":
        found = messages.ModelStatisticsResponse.FromString(answer.body).model_stats
        return {"stats of": [[one.name, one.version] for one in found]}
    if method == "RepositoryIndex":
        index = messages.RepositoryIndexResponse.FromString(answer.body).models
        return {"entries": [[one.name, one.version, one.state] for one in index]}
    if method in _UNLIKE:
        return {}
    response = messages.ModelInferResponse.FromString(answer.body)
    facts: Document = {"model": response.model_name, "version": response.model_version, "id": response.id}
    for one, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        facts[one.name] = [one.datatype, list(one.shape), raw.hex()]
    return facts
