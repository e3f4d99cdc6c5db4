"""Requests made to hurt: whatever arrives is answered as the client's fault, and the server goes on serving."""

import json
import resource
import struct
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway_runtime.http.connection import Bounds
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from tritonclient.grpc import service_pb2 as messages

from tests.runtime.harness import INFER, ServerThread, await_condition, echo_model, fetch, talk

MAX_BODY = 200_000
MOST_GROWTH = 200 * 1024
"""KiB by which the process may grow over all requests of a test."""
FAULTS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
DATATYPES = [*map(str, Datatype), "", "FP8", "fp32", "BYTES ", "\u202e"]
SIZES = st.sampled_from([-1, 0, 1, 2, 3, 2**16, 2**31, 2**32, 2**62, 2**63 - 1])
TEXTS = st.sampled_from(["x", "", "y", "\x00", "a" * 5000, "../x", "\u202e"])
CLAIMS = st.sampled_from(["", "0", "-1", "1", "x", "99999999999"])
GOOD = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[NaN]}]'
NUMBERS: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1.5, -1, 2**70, 10**400, 1e308, "1", True, None, [], {}, [[1]], "NaN"]
)


PARAMETERS = st.dictionaries(
    st.sampled_from(["timeout", "priority", "sequence_id", "cache", "binary_data_output", "x"]), NUMBERS, max_size=3
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    bounds = Bounds(max_body=MAX_BODY, max_chunks=20, head_time=1.0, body_stall=1.0, idle_time=60, linger=0.5)
    with ServerThread(echo_model(Datatype.FP32, batched=True), Limits(max_request_bytes=MAX_BODY), bounds) as started:
        yield started


@pytest.fixture(autouse=True)
def serving_and_small(server: ServerThread) -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert server.infer([[1.0, 2.0]])[0] == 200
    await_condition(lambda: server.metrics()["slipway_requests_in_flight"] == 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_GROWTH


def ask(server: ServerThread, body: bytes, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return fetch(server.address, "POST", INFER, body, named)[0]


def post(body: bytes, *headers: bytes) -> bytes:
    lines = [f"POST {INFER} HTTP/1.1".encode(), b"Host: a", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    tensor: dict[str, Any] = {
        "name": draw(TEXTS),
        "datatype": draw(st.sampled_from(DATATYPES)),
        "shape": draw(st.lists(SIZES | NUMBERS, max_size=4)),
        "data": draw(st.lists(NUMBERS, max_size=4) | NUMBERS),
    }
    if draw(st.booleans()):
        tensor["parameters"] = {"binary_data_size": draw(SIZES | NUMBERS)}
        tensor.pop("data")
    return {name: value for name, value in tensor.items() if draw(st.integers(0, 9))}


@given(st.lists(tensors(), max_size=3), PARAMETERS, st.binary(max_size=40), CLAIMS)
@settings(max_examples=150)
def test_no_request_over_http_takes_the_server_down(
    server: ServerThread, inputs: list[dict[str, Any]], parameters: dict[str, Any], tail: bytes, claimed: str
) -> None:
    head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    named = {"Inference_Header_Content_Length": claimed or str(len(head))} if tail or claimed else {}
    assert ask(server, head + tail, **named) in (200, 400, 413, 504)


@given(st.dictionaries(st.sampled_from(["x", "id", "parameters", "y"]), NUMBERS | PARAMETERS), PARAMETERS)
@settings(max_examples=100)
def test_no_plain_request_takes_the_server_down(
    server: ServerThread, document: dict[str, Any], parameters: dict[str, Any]
) -> None:
    body = json.dumps({**parameters, **document}).encode()
    for form in ("generate", "generate_stream"):
        status, answer, _ = fetch(server.address, "POST", INFER.replace("infer", form), body)
        assert status in (200, 400, 504)
        assert b"internal error" not in answer


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"inputs":' * 20_000,
        b'{"inputs": [' + b"{}," * 50_000 + b"{}]}",
        b'{"inputs":[],"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[' + b"9" * 100_000 + b"]}]}",
        json.dumps({"inputs": [{"name": "x", "shape": [1] * 20_000, "datatype": "FP32", "data": [1]}]}).encode(),
        json.dumps({"inputs": [{"name": "x", "shape": [2**62, 4], "datatype": "FP32", "data": []}]}).encode(),
        b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1e999]}]}',
        b"\xff\xfe" * 1000,
        b'{"id": "\\ud800"}',
        GOOD + b',"parameters":{"timeout":1' + b"0" * 400 + b"}}",
        GOOD + b',"parameters":{"priority":1' + b"0" * 400 + b"}}",
        GOOD + b',"outputs":[{"name":"y","parameters":{"classification":1' + b"0" * 400 + b"}}]}",
    ],
    ids=[
        "deep lists", "deep objects", "many inputs", "twice", "rank", "product", "infinite", "no text", "surrogate",
        "a long timeout", "a long priority", "many classes",
    ],
)  # fmt: skip
def test_json_at_its_worst_is_the_clients_fault(server: ServerThread, body: bytes) -> None:
    assert ask(server, body) == 400


@pytest.mark.parametrize("data", [b"", b"\x01", struct.pack("<I", 2**32 - 1) + b"ab", struct.pack("<I", 2) + b"a"])
def test_texts_longer_than_what_was_sent_are_the_clients_fault(server: ServerThread, data: bytes) -> None:
    tensor = {"name": "x", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [tensor]}).encode()
    assert ask(server, head + data, Inference_Header_Content_Length=str(len(head))) == 400


@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        (post(b"{}", *(b"X-%d: y" % number for number in range(5000))), {b"431", b"400"}),
        (post(b"{}", b"X: " + b"y" * 200_000), {b"431", b"400"}),
        (post(b"{}", b"X\x00: y"), {b"400"}),
        (post(b"{}", b"X : y"), {b"400"}),
        (post(b"{}", b"Transfer-Encoding: chunked"), {b"400"}),
        (post(b"{}", b"Content-Length: 3"), {b"400"}),
        (post(b"{}").replace(b"/v2", b"/" + b"v" * 100_000, 1), {b"414", b"431", b"400", b"404"}),
    ],
    ids=["many headers", "a long header", "NUL", "space", "both lengths", "two lengths", "a long path"],
)
def test_heads_at_their_worst_are_refused(server: ServerThread, request_: bytes, codes: set[bytes]) -> None:
    assert talk(server.address, request_).split(b" ")[1] in codes


def called(channel: grpc.Channel, data: bytes) -> grpc.StatusCode:
    try:
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(data, timeout=60.0)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.fixture(scope="module")
def channel(server: ServerThread) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc_address) as opened:
        yield opened


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    request = messages.ModelInferRequest(model_name="my model", model_version=draw(st.sampled_from(["", "v9", "1"])))
    for _ in range(draw(st.integers(0, 3))):
        tensor = request.inputs.add(name=draw(TEXTS), datatype=draw(st.sampled_from(DATATYPES)))
        tensor.shape.extend(draw(st.lists(SIZES, max_size=4)))
        if draw(st.booleans()):
            tensor.contents.fp32_contents.extend([1.0] * draw(st.integers(0, 3)))
            tensor.contents.bytes_contents.extend([b"x"] * draw(st.integers(0, 1)))
    request.raw_input_contents.extend(draw(st.lists(st.binary(max_size=12), max_size=3)))
    data = bytearray(request.SerializeToString())
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@given(requests())
@settings(max_examples=150)
def test_no_message_over_grpc_takes_the_server_down(channel: grpc.Channel, data: bytes) -> None:
    assert called(channel, data) in FAULTS | {grpc.StatusCode.OK}
