"""Long JSON: read in pieces, it gives what it would give at once, and takes no more memory than its tensor."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway_runtime.protocol import jsondata, longlists
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.generation import decode_generate
from slipway_runtime.protocol.jsondata import decode_text
from slipway_runtime.protocol.longlists import LONG
from slipway_runtime.protocol.request import decode_request
from slipway_runtime.rpc.requests import Undecoded
from slipway_runtime.serving.budget import ByteBudget, Reservation
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, TensorSpec
from tritonclient.grpc import service_pb2

from tests.runtime.harness import INFER, PATIENCE, ROOT, GatedModel, ServerThread, await_condition, fetch

NUMBERS = (Datatype.FP32, Datatype.FP64, Datatype.INT8, Datatype.INT64, Datatype.UINT64, Datatype.BOOL)
VALUES = st.one_of(
    st.integers(-130, 130), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), st.booleans(), st.none(),
    st.just("1"),
)  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """Lists in lists as they are sent, most of them right, and a shape."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    kind = draw(st.sampled_from([st.integers(0, 100), st.floats(-1, 1), st.booleans(), VALUES]))
    count = int(np.prod(shape))
    flat = draw(st.lists(kind, min_size=count, max_size=count))
    array = np.empty(count, dtype=object)
    array[:] = flat
    nested = array.reshape(draw(st.sampled_from([shape, (count,), (*shape, 1)]))).tolist()
    if draw(st.booleans()):
        # Now and then a list too many, an element too few.
        place = nested
        while isinstance(place[-1], list):
            place = place[-1]
        place[-1] = draw(st.sampled_from([[1], [], 1, [1, 2]]))
    separators = draw(st.sampled_from([(",", ":"), (" , ", ":"), (",\n\t", ":")]))
    return json.dumps(nested, separators=separators), shape


@contextlib.contextmanager
def tiny_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longlists, "LONG", 5)
        patch.setattr(jsondata, "LONG", 0)
        yield


def outcome(datatype: Datatype, shape: tuple[int, ...], text: str) -> Any:
    try:
        array = decode_text("x", datatype, shape, msgspec.Raw(text.encode()))
    except RequestFailure as failure:
        return int(failure.status)
    return array.dtype, array.shape, [str(one) for one in array.reshape(-1)]


@settings(max_examples=300)
@given(texts(), st.sampled_from(NUMBERS))
def test_pieces_give_what_the_whole_gives(given_text: tuple[str, tuple[int, ...]], datatype: Datatype) -> None:
    text, shape = given_text
    whole = outcome(datatype, shape, text)
    with tiny_pieces():
        assert outcome(datatype, shape, text) == whole


@pytest.mark.parametrize(
    ("text", "shape", "status"),
    [
        ("[[1,2],[3]]", (3,), 400), ("[[1],2,[3,4]]", (4,), 400), ("[1,[2,3]]", (3,), 400), ("[[[1]],[2]]", (2,), 400),
        ("[]", (1,), 400), ("5", (1,), 400), ("[[],[1]]", (1,), 400), ('["1"]', (1,), 400), ("[{}]", (1,), 400),
        ("[" * 33 + "1" + "]" * 33, (1,), 400), ("[1,2,3]", (2,), 400), ("[1,2]", (3,), 400),
    ],
)  # fmt: skip
def test_lists_that_are_no_tensor_are_refused(text: str, shape: tuple[int, ...], status: int) -> None:
    with tiny_pieces():
        assert outcome(Datatype.FP32, shape, text) == status
        assert outcome(Datatype.FP32, (0,), "[[],[]]") == (np.float32, (0,), [])


def long_body(data: str, shape: list[int], datatype: str = "FP32", **more: Any) -> bytes:
    tensor = {"name": "NaN", "shape": shape, "datatype": datatype, "data": 0}
    text = json.dumps({"id": 'Infinity "', "inputs": [tensor], **more})
    return text.replace('"data": 0', f'"data": {data}').encode()


def test_tokens_in_a_long_text_are_numbers_and_in_its_strings_are_not() -> None:
    count = LONG // 4
    body = long_body(",".join(["[NaN"] + ["Infinity", "-Infinity", "0.5"] * count + ["-1]"]), [3 * count + 2])
    read = decode_request(memoryview(body), None)
    assert read.id == 'Infinity "' and read.inputs[0].name == "NaN"
    array = read.inputs[0].array
    assert np.isnan(array[0]) and array[1:5].tolist() == [np.inf, -np.inf, 0.5, np.inf] and array[-1] == -1
    infinite = body.replace(b"-1]", b"1e999]")
    renamed = body.replace(b'"inputs"', b'"input"')
    for damaged in (infinite, body[:-1], body.replace(b"0.5", b"0.5.5"), renamed, body + b"]"):
        with pytest.raises(RequestFailure) as refusal:
            decode_request(memoryview(damaged), None)
        assert refusal.value.status == 400


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {"a": [[0]] * LONG}}, {"outputs": [{"name": "y", "parameters": {"a": "b" * 2 * LONG}}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [300] * LONG, "data": []}]}, {"outputs": 5 * LONG},
        {"inputs": [{"name": "x", "datatype": "FP16", "shape": [1], "data": [1.5] * LONG}]},
        {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [9], "data": ["ab"] * LONG}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [9], "data": [1.5] * LONG}]},
    ],
)  # fmt: skip
def test_what_else_is_long_is_refused(more: dict[str, Any]) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.5]}], "padding": "x" * LONG, **more}
    with pytest.raises(RequestFailure) as refusal:
        decode_request(memoryview(json.dumps(body).encode()), None)
    assert refusal.value.status == 400


def test_texts_of_a_long_request_are_read() -> None:
    words = [f'{number} ", [NaN' for number in range(LONG // 16)]
    body = json.dumps({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [len(words)], "data": words}]}).encode()
    assert len(body) > LONG
    assert decode_request(memoryview(body), None).inputs[0].array.tolist() == [one.encode() for one in words]


def spec(datatype: Datatype, rank: int) -> Signature:
    return Signature((TensorSpec("x", datatype, (-1,) * rank),), (), batched=True)


def test_long_generate_requests() -> None:
    rows = [[number, 0.5] for number in range(LONG // 8)]
    read = decode_generate(json.dumps({"x": rows, "max_tokens": 3, "id": "a"}).encode(), spec(Datatype.FP32, 2))
    assert read.inputs[0].array.tolist() == rows and read.parameters == {"max_tokens": 3} and read.id == "a"
    prompt = "\n".join("word" for _ in range(LONG))
    for value, rank, want in ((prompt, 1, [prompt.encode()]), ([prompt] * 2, 2, [[prompt.encode()] * 2])):
        read = decode_generate(json.dumps({"x": value}).encode(), spec(Datatype.BYTES, rank))
        assert read.inputs[0].array.tolist() == want
    for wrong in (
        json.dumps({"x": 1, "a": [[0]] * LONG}), json.dumps({"x": [[0], [0, 1]] * LONG}), json.dumps([0] * LONG),
        json.dumps({"x": ["a"] * LONG}), json.dumps({"x": [0] * LONG})[:-1], json.dumps({"x": 1, "a": "b" * LONG}),
    ):  # fmt: skip
        with pytest.raises(RequestFailure) as refusal:
            decode_generate(wrong.encode(), spec(Datatype.FP32, 2))
        assert refusal.value.status == 400


PEAK = """
import json, resource, sys
sys.path[:0] = {path!r}
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import decode_request
count = 4_000_000
text = ",".join(["{element}"] * count)
head = '{{"inputs": [{{"name": "x", "datatype": "INT8", "shape": [%d, 1], "data": [' % count
body = memoryview((head + text + "{end}").encode())
del text
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_request(body, None)
except RequestFailure:
    assert "{end}" != "]}}]}}" or "{element}" != "[0]"
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(body))
"""


@pytest.mark.parametrize(("element", "end"), [("[0]", "]}]}"), ("[0]", ""), ("[NaN]", "]}]}")])
def test_reading_takes_little_memory(element: str, end: str) -> None:
    code = PEAK.format(path=[str(ROOT / "runtime_image")], element=element, end=end)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    # At once it takes 14 to 30 times the text.
    assert float(done.stdout) < 6


@pytest.mark.parametrize("packed", [False, True])
def test_numbers_are_counted_by_what_they_become(packed: bool) -> None:
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2000],"data":[' + b",".join([b"0"] * 2000) + b"]}]}"
    assert len(body) < 5000
    model = GatedModel()
    with ServerThread(model, Limits(max_inflight_bytes=12_000)) as server, ThreadPoolExecutor() as pool:
        headers = {"Content-Encoding": "gzip"} if packed else {}
        sent = gzip.compress(body) if packed else body
        answer = pool.submit(fetch, server.address, "POST", INFER, sent, headers)
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 8000)
        status, data, _ = fetch(server.address, "POST", INFER, sent, headers)
        assert status == 429 and b"memory budget" in data
        model.permit()
        assert answer.result(PATIENCE)[0] == 200
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 0)


def test_what_grpc_messages_become_is_counted() -> None:
    def size(raw: bytes | None, datatype: str, **contents: Any) -> int:
        message = service_pb2.ModelInferRequest(
            inputs=[{"name": "x", "datatype": datatype, "shape": [3], **({"contents": contents} if contents else {})}],
            raw_input_contents=[] if raw is None else [raw],
        )
        return Undecoded(memoryview(message.SerializeToString())).decode().size

    assert size(b"\0" * 24, "INT64") == 0
    assert size(None, "INT64", int64_contents=[0, 1, 2]) == 24
    words = b"\1\0\0\0a" * 3
    assert size(words, "BYTES") == 3 * 48 + len(words)
    assert size(None, "BYTES", bytes_contents=[b"a"] * 3) == 3 * 48 + 9


def test_a_reservation_grows_and_gives_all_back() -> None:
    budget = ByteBudget(10)
    one, other = Reservation(budget), Reservation(budget)
    one.grow(4)
    other.grow(3)
    other.grow(3)
    for size, status in ((1, 429), (7, 413)):
        with pytest.raises(RequestFailure) as refusal:
            one.grow(size)
        assert refusal.value.status == status and budget.held == 10
    one.release()
    one.release()
    other.release()
    assert budget.held == 0
