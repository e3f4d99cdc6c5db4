"""The requests of the conformance run: valid, at the edge, and wrong in one way each."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

MODEL = "m"
MAX_ROWS = 8
PORTS = (
    ("x", "FP32", 4),
    ("i", "INT8", 2),
    ("u", "UINT64", 1),
    ("b", "BOOL", 2),
    ("h", "FP16", 2),
    ("s", "BYTES", 1),
)
"""Inputs of the model: name, datatype, columns; every output is named ``out_<input>``."""
INFER = f"/v2/models/{MODEL}/infer"
_HEAD_LENGTH = "Inference-Header-Content-Length"
Entry = dict[str, Any]
Document = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """An HTTP request under a name."""

    name: str
    method: str = "POST"
    path: str = INFER
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


RAW: dict[str, bytes] = {
    "x": b"\x00\x00\x80?\x00\x00\x00@\x00\x00 \xc0\x00\x00\x00\x00",
    "i": b"\x80\x7f",
    "u": b"\xff\xff\xff\xff\xff\xff\xff\xff",
    "b": b"\x01\x00",
    "h": b"\x00<\x00\xc0",
    "s": b"\x05\x00\x00\x00zw\xc3\xb6l",
}
_JSON: dict[str, list[Any]] = {
    "x": [1.0, 2.0, -2.5, 0.0],
    "i": [-128, 127],
    "u": [2**64 - 1],
    "b": [True, False],
    "s": ["zwöl"],
}


def _entry(name: str, binary: bool) -> tuple[Entry, bytes]:
    datatype, columns = next((kind, width) for one, kind, width in PORTS if one == name)
    entry: Entry = {"name": name, "shape": [1, columns], "datatype": datatype}
    if binary:
        return {**entry, "parameters": {"binary_data_size": len(RAW[name])}}, RAW[name]
    return {**entry, "data": _JSON[name]}, b""


def document(binary: frozenset[str]) -> tuple[Document, bytes]:
    """A valid request with those inputs in binary; FP16 has no other form."""
    parts = [_entry(name, name in binary or name == "h") for name, _, _ in PORTS]
    wanted = [{"name": f"out_{name}", "parameters": {"binary_data": name == "h"}} for name, _, _ in PORTS]
    return {"inputs": [entry for entry, _ in parts], "outputs": wanted}, b"".join(blob for _, blob in parts)


def encoded(name: str, head: Document | bytes, blob: bytes = b"", **headers: str) -> Request:
    """A request with the head's length, in which only ``headers`` may be wrong."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return Request(name, headers={_HEAD_LENGTH: str(len(text)), **headers}, body=text + blob)


def _changed(name: str, change: Callable[[Document], None]) -> Request:
    head, blob = document(frozenset())
    change(head)
    return encoded(name, head, blob)


def _set(index: int, **values: Any) -> Callable[[Document], None]:
    return lambda head: head["inputs"][index].update(values)


def requests() -> list[Request]:
    """All of them; names are unique."""
    return [*_valid(), *_bodies(), *_tensors(), *_binary(), *_coded(), *_names(), *_documents()]


def _valid() -> Iterator[Request]:
    every = frozenset(name for name, _, _ in PORTS)
    yield encoded("json", *document(frozenset()))
    yield encoded("binary", *document(every))
    for name in ("x", "s", "b"):
        yield encoded(f"mix of json and binary {name}", *document(frozenset({name})))
    head, blob = document(every)
    yield encoded("all outputs in binary", {"inputs": head["inputs"], "parameters": {"binary_data_output": True}}, blob)
    yield encoded("one output", {**head, "outputs": [{"name": "out_x"}]}, blob)
    yield encoded("empty list of outputs", {**head, "outputs": [], "parameters": {"binary_data_output": True}}, blob)
    yield encoded("with an id", {**head, "id": "request 7"}, blob)
    yield encoded("with parameters", {**head, "parameters": {"priority": 1, "timeout": 5000000, "own": "a"}}, blob)
    yield Request("version in the path", "POST", f"/v2/models/{MODEL}/versions/1/infer", *_parts(head, blob))
    yield _changed("nested lists", _set(0, data=[[1.0, 2.0, -2.5, 0.0]]))
    yield _changed("whole numbers for floats", _set(0, data=[1, 2, 3, 4]))
    yield _changed("inputs in another order", lambda one: one["inputs"][:4].reverse())


def _parts(head: Document, blob: bytes) -> tuple[dict[str, str], bytes]:
    made = encoded("", head, blob)
    return made.headers, made.body


def _bodies() -> Iterator[Request]:
    for name, body in {
        "empty body": b"",
        "not JSON": b"{",
        "a JSON list": b"[]",
        "a JSON number": b"7",
        "no inputs": b'{"inputs": []}',
        "inputs missing": b"{}",
        "inputs of the wrong type": b'{"inputs": {"name": "x"}}',
        "deep nesting": b'{"inputs": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        "not UTF-8": b'{"inputs": "\xff"}',
    }.items():
        yield Request(name, body=body)


def _tensors() -> Iterator[Request]:
    yield _changed("wrong datatype", _set(0, datatype="FP64"))
    yield _changed("unknown datatype", _set(0, datatype="FP33"))
    yield _changed("datatype in lower case", _set(0, datatype="fp32"))
    yield _changed("datatype missing", lambda head: head["inputs"][0].pop("datatype"))
    yield _changed("wrong width", _set(0, shape=[1, 5], data=[1.0] * 5))
    yield _changed("wrong rank", _set(0, shape=[4]))
    yield _changed("shape of a scalar", _set(0, shape=[], data=[1.0]))
    yield _changed("negative shape", _set(0, shape=[-1, 4]))
    yield _changed("huge shape", _set(0, shape=[2**40, 4]))
    yield _changed("overflowing shape", _set(0, shape=[2**62, 4]))
    yield _changed("shape of floats", _set(0, shape=[1.5, 4]))
    yield _changed("shape missing", lambda head: head["inputs"][0].pop("shape"))
    yield _changed("no rows", _set(0, shape=[0, 4], data=[]))
    yield _changed("rows differ between inputs", _set(0, shape=[2, 4], data=[1.0] * 8))
    yield _changed("too few elements", _set(0, data=[1.0]))
    yield _changed("too many elements", _set(0, data=[1.0] * 5))
    yield _changed("null among numbers", _set(0, data=[1.0, None, 2.0, 3.0]))
    yield _changed("a string among numbers", _set(0, data=[1.0, "2", 3.0, 4.0]))
    yield _changed("a bool among numbers", _set(1, data=[True, 1]))
    yield _changed("INT8 out of range", _set(1, data=[300, 1]))
    yield _changed("a float among integers", _set(1, data=[1.5, 1]))
    yield _changed("a negative UINT64", _set(2, data=[-1]))
    yield _changed("a number among bools", _set(3, data=[1, 0]))
    yield _changed("a number among strings", _set(5, data=[7]))
    yield _changed("FP16 as JSON", lambda head: head["inputs"][4].update(data=[1.0, 2.0], parameters={}))
    yield _changed("NaN and Infinity", _set(0, data=[float("nan"), float("inf"), 1.0, float("-inf")]))
    yield _changed("data of no list", _set(0, data=1.0))
    yield _changed("data missing", lambda head: head["inputs"][0].pop("data"))
    yield _rows("as many rows as a batch holds", MAX_ROWS)
    yield _rows("more rows than a batch holds", MAX_ROWS + 1)


def _rows(name: str, count: int) -> Request:
    head, blob = document(frozenset())
    for entry in head["inputs"]:
        entry["shape"] = [count, entry["shape"][1]]
        if "data" in entry:
            entry["data"] = entry["data"] * count
        else:
            entry["parameters"] = {"binary_data_size": len(blob) * count}
    return encoded(name, head, blob * count)


def _binary() -> Iterator[Request]:
    every = frozenset(name for name, _, _ in PORTS)
    head, blob = document(every)
    yield encoded("binary data too short", head, blob[:-1])
    yield encoded("binary data too long", head, blob + b"\x00")
    yield encoded("no head length", head, blob, **{_HEAD_LENGTH: ""})
    for value in ("-1", "0", "abc", "2147483648", "9223372036854775808", "99999", "1"):
        yield encoded(f"head length {value}", head, blob, **{_HEAD_LENGTH: value})
    plain = encoded("", head, blob)
    yield Request("binary without the header", body=plain.body)
    for name, index, values in (
        ("binary size too small", 0, {"binary_data_size": 12}),
        ("binary size negative", 0, {"binary_data_size": -16}),
        ("binary size a string", 0, {"binary_data_size": "16"}),
        ("binary size beyond the body", 0, {"binary_data_size": 10**12}),
        ("shared memory that is not there", 0, {"shared_memory_region": "r", "shared_memory_byte_size": 16}),
    ):
        changed, rest = document(every)
        changed["inputs"][index]["parameters"] = values
        yield encoded(name, changed, rest)
    both, rest = document(every)
    both["inputs"][0]["data"] = [1.0, 2.0, 3.0, 4.0]
    yield encoded("both data and binary", both, rest)
    for name, raw in {
        "BYTES prefix cut off": b"\x05\x00",
        "BYTES element cut off": b"\x09\x00\x00\x00abc",
        "BYTES with an element too many": b"\x01\x00\x00\x00a\x01\x00\x00\x00b",
        "BYTES of no bytes": b"\x00\x00\x00\x00",
    }.items():
        changed, rest = document(every)
        changed["inputs"][5]["parameters"] = {"binary_data_size": len(raw)}
        yield encoded(name, changed, rest.removesuffix(RAW["s"]) + raw)
    raw = b"\x02\x00\x00\x00\xff\xfe"
    changed, rest = document(every)
    changed["inputs"][5]["parameters"] = {"binary_data_size": len(raw)}
    yield encoded("BYTES that are no text, wanted as JSON", changed, rest.removesuffix(RAW["s"]) + raw)


def _coded() -> Iterator[Request]:
    plain = encoded("", *document(frozenset({"x"})))
    for coding, packed in (("gzip", gzip.compress(plain.body, mtime=0)), ("deflate", zlib.compress(plain.body))):
        headers = {**plain.headers, "Content-Encoding": coding}
        yield Request(f"{coding} request", headers=headers, body=packed)
        yield Request(f"{coding} cut off", headers=headers, body=packed[:-9])
        yield Request(f"{coding} that is none", headers=headers, body=plain.body)
        yield Request(f"{coding} answer", headers={**plain.headers, "Accept-Encoding": coding}, body=plain.body)
    yield Request("unknown coding", headers={**plain.headers, "Content-Encoding": "br"}, body=plain.body)
    yield Request("identity", headers={**plain.headers, "Content-Encoding": "identity"}, body=plain.body)
    yield Request("another content type", headers={**plain.headers, "Content-Type": "text/plain"}, body=plain.body)


def _names() -> Iterator[Request]:
    head, blob = document(frozenset())
    headers, body = _parts(head, blob)
    for name, path in {
        "unknown model": "/v2/models/other/infer",
        "unknown version": f"/v2/models/{MODEL}/versions/9/infer",
        "version of no number": f"/v2/models/{MODEL}/versions/abc/infer",
        "unknown path": f"/v2/models/{MODEL}/nothing",
        "path outside": "/v3",
    }.items():
        yield Request(name, "POST", path, headers, body)
    yield Request("infer by GET", "GET", INFER)
    yield _changed("unknown input", lambda one: one["inputs"].append({**one["inputs"][0], "name": "z"}))
    yield _changed("input missing", lambda one: one["inputs"].pop(0))
    yield _changed("input twice", lambda one: one["inputs"].append(dict(one["inputs"][0])))
    yield _changed("input without a name", lambda one: one["inputs"][0].pop("name"))
    yield _changed("unknown output", lambda one: one["outputs"].append({"name": "out_z"}))
    yield _changed("output twice", lambda one: one["outputs"].append({"name": "out_x"}))
    yield _changed("classification", lambda one: one["outputs"][0].update(parameters={"classification": 2}))
    yield _changed("output in shared memory", _output(shared_memory_region="r", shared_memory_byte_size=16))
    yield _changed("binary_data of no bool", _output(binary_data="yes"))
    yield _changed("a number as id", lambda one: one.update(id=7))


def _output(**parameters: Any) -> Callable[[Document], None]:
    return lambda head: head["outputs"][0].update(parameters=parameters)


def _documents() -> Iterator[Request]:
    for path in (
        "/v2", "/v2/health/live", "/v2/health/ready", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/versions/1",
        f"/v2/models/{MODEL}/ready", f"/v2/models/{MODEL}/versions/1/ready", f"/v2/models/{MODEL}/config",
        f"/v2/models/{MODEL}/stats", f"/v2/models/{MODEL}/versions/1/stats", "/v2/models/stats", "/v2/models/other",
        "/v2/models/other/ready", "/v2/models/other/config", "/v2/models/other/stats",
        f"/v2/models/{MODEL}/versions/9", f"/v2/models/{MODEL}/versions/9/ready", "/v2/trace/setting",
        f"/v2/models/{MODEL}/trace/setting", "/v2/logging", "/v2/systemsharedmemory/status",
        "/v2/cudasharedmemory/status", "/v2/systemsharedmemory/region/r/status",
        "/v2/cudasharedmemory/region/r/status", "/",
    ):  # fmt: skip
        yield Request(f"GET {path}", "GET", path)
    yield Request("repository index", path="/v2/repository/index")
    yield Request("repository index of ready models", path="/v2/repository/index", body=b'{"ready": true}')
    yield Request("load of an unknown model", path="/v2/repository/models/other/load", body=b"{}")
    yield Request("unload of an unknown model", path="/v2/repository/models/other/unload", body=b"{}")
    yield Request("log settings that are none", path="/v2/logging", body=b"{")
    yield Request("an unknown log setting", path="/v2/logging", body=b'{"volume": 11}')
    yield Request("trace settings that are none", path="/v2/trace/setting", body=b"{")
    yield Request("metadata by POST", "POST", f"/v2/models/{MODEL}")
    yield Request("index by GET", "GET", "/v2/repository/index")
    yield Request("load by GET", "GET", f"/v2/repository/models/{MODEL}/load")
