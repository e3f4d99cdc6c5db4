"""The requests of the conformance run over gRPC, as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import service_pb2 as messages

from e2e.bench.conformance.requests import MODEL, PORTS, RAW

_SERVICE = "/inference.GRPCInferenceService/"


@dataclass(frozen=True)
class Call:
    """A unary call under a name."""

    name: str
    method: str
    body: bytes

    @property
    def path(self) -> str:
        """The method with its service."""
        return f"{_SERVICE}{self.method}"


def infer_request() -> Any:
    """A valid ModelInferRequest."""
    request = messages.ModelInferRequest(model_name=MODEL)
    for name, datatype, columns in PORTS:
        request.inputs.add(name=name, datatype=datatype, shape=[1, columns])
        request.raw_input_contents.append(RAW[name])
    return request


def _changed(name: str, change: Callable[[Any], object]) -> Call:
    request = infer_request()
    change(request)
    return Call(name, "ModelInfer", request.SerializeToString())


def calls() -> list[Call]:
    """All of them; names are unique."""
    return [*_infer(), *_others()]


def _only_output(request: Any) -> None:
    request.outputs.add(name="out_x")


def _unknown_output(request: Any) -> None:
    request.outputs.add(name="out_z")


def _typed(request: Any) -> None:
    del request.raw_input_contents[:]
    first = request.inputs[0]
    del request.inputs[1:]
    first.contents.fp32_contents.extend([1.0, 2.0, 3.0, 4.0])


def _set(index: int, **values: Any) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        for key, value in values.items():
            if key == "shape":
                request.inputs[index].shape[:] = value
            else:
                setattr(request.inputs[index], key, value)

    return change


def _raw(index: int, value: bytes) -> Callable[[Any], None]:
    def change(request: Any) -> None:
        request.raw_input_contents[index] = value

    return change


def _infer() -> Iterator[Call]:
    yield _changed("infer", lambda request: None)
    yield _changed("infer with an id", lambda request: setattr(request, "id", "7"))
    yield _changed("one output", _only_output)
    yield _changed("version", lambda request: setattr(request, "model_version", "1"))
    yield _changed("unknown model", lambda request: setattr(request, "model_name", "other"))
    yield _changed("no model", lambda request: setattr(request, "model_name", ""))
    yield _changed("unknown version", lambda request: setattr(request, "model_version", "9"))
    yield _changed("version of no number", lambda request: setattr(request, "model_version", "abc"))
    yield _changed("unknown output", _unknown_output)
    yield _changed("typed beside inputs that are missing", _typed)
    yield _changed("raw and typed", lambda one: one.inputs[0].contents.fp32_contents.append(1.0))
    yield _changed("no inputs", lambda one: one.ClearField("inputs"))
    yield _changed("an input missing", lambda one: (one.inputs.pop(0), one.raw_input_contents.pop(0)))
    yield _changed("fewer raw entries than inputs", lambda one: one.raw_input_contents.pop())
    yield _changed("more raw entries than inputs", lambda one: one.raw_input_contents.append(b""))
    yield _changed("wrong datatype", _set(0, datatype="FP64"))
    yield _changed("unknown datatype", _set(0, datatype="FP33"))
    yield _changed("no datatype", _set(0, datatype=""))
    yield _changed("unknown input", _set(0, name="z"))
    yield _changed("input twice", _set(1, name="x"))
    yield _changed("wrong width", _set(0, shape=[1, 5]))
    yield _changed("wrong rank", _set(0, shape=[4]))
    yield _changed("shape of a scalar", _set(0, shape=[]))
    yield _changed("negative shape", _set(0, shape=[-1, 4]))
    yield _changed("huge shape", _set(0, shape=[2**62, 4]))
    yield _changed("raw data too short", _raw(0, b"\x00" * 12))
    yield _changed("raw data too long", _raw(0, b"\x00" * 20))
    yield _changed("BYTES element cut off", _raw(5, b"\x09\x00\x00\x00abc"))
    yield _changed("BYTES prefix cut off", _raw(5, b"\x05\x00"))
    yield Call("not a message", "ModelInfer", b"\xff\xff\xff\xff")
    yield Call("an empty message", "ModelInfer", b"")


def _others() -> Iterator[Call]:
    for method in ("ServerLive", "ServerReady", "ServerMetadata"):
        yield Call(method, method, b"")
    for method in ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"):
        make = getattr(messages, f"{method}Request")
        for name, version in ((MODEL, ""), (MODEL, "1"), ("other", ""), (MODEL, "9"), ("", "")):
            body = make(name=name, version=version).SerializeToString()
            yield Call(f"{method} {name or 'of no name'} {version}".strip(), method, body)
    yield Call("RepositoryIndex", "RepositoryIndex", b"")
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        body = getattr(messages, f"{method}Request")(model_name="other").SerializeToString()
        yield Call(f"{method} of an unknown model", method, body)
    for method in ("SystemSharedMemoryStatus", "CudaSharedMemoryStatus", "TraceSetting", "LogSettings"):
        yield Call(method, method, b"")
    for method in ("SystemSharedMemoryStatus", "CudaSharedMemoryStatus"):
        body = getattr(messages, f"{method}Request")(name="r").SerializeToString()
        yield Call(f"{method} of a region that is not there", method, body)
    yield Call("no such method", "Nothing", b"")
