"""Small requests that would keep a server busy for minutes, or take many times their size in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import MAX_TENSORS, MAX_TEXTS, decode_request
from slipway_runtime.rpc import requests as rpc_requests
from slipway_runtime.rpc.requests import Undecoded
from slipway_runtime.rpc.wire import MAX_FIELDS, bytes_field, number_field, packed_field, text_field, varint
from slipway_runtime.tensors.datatypes import Datatype

from tests.runtime.harness import INFER, ServerThread, echo_model, fetch

MANY = 300_000
"""Elements of a tensor that is read in a thread."""


def message(datatype: Datatype, shape: list[int], contents: bytes, *more: bytes) -> bytes:
    tensor = text_field(1, "x") + text_field(2, datatype) + packed_field(3, shape) + bytes_field(5, contents)
    return b"".join((text_field(1, "my model"), bytes_field(5, tensor), *more))


def refused(data: bytes) -> str:
    with pytest.raises(RequestFailure) as caught:
        Undecoded(memoryview(data)).decode()
    assert caught.value.status == 400
    return caught.value.text


def small(*more: bytes) -> bytes:
    return message(Datatype.INT8, [1], bytes_field(2, b"\x01"), *more)


@pytest.mark.parametrize(
    "data",
    [
        small(number_field(9, 1) * MAX_FIELDS),
        small(bytes_field(4, number_field(9, 1) * MAX_FIELDS)),
        small(bytes_field(5, number_field(9, 1) * (MAX_FIELDS // 2)), bytes_field(6, number_field(9, 1) * MAX_FIELDS)),
        message(Datatype.INT8, [MAX_FIELDS + 1], number_field(2, 1) * (MAX_FIELDS + 1)),
        message(Datatype.BYTES, [2], bytes_field(8, b"") * (MAX_TEXTS + 1)),
    ],
    ids=["unknown", "in a parameter", "over several tensors", "numbers one by one", "texts"],
)
def test_messages_of_too_many_fields_are_not_read_to_their_end(data: bytes) -> None:
    assert refused(data) == "the message has too many fields"


def test_texts_are_counted_before_there_are_any() -> None:
    shape = [MAX_TEXTS + 1]
    assert refused(message(Datatype.BYTES, shape, b"")) == f"input 'x': more than {MAX_TEXTS} elements"
    tensor = {"name": "x", "datatype": "BYTES", "shape": shape, "parameters": {"binary_data_size": 0}}
    with pytest.raises(RequestFailure, match=f"more than {MAX_TEXTS}"):
        decode_request(memoryview(json.dumps({"inputs": [tensor]}).encode()), None)


def test_numbers_are_counted_before_there_is_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(rpc_requests, "_converted", lambda *given: made.append(given))
    assert "do not fill" in refused(message(Datatype.INT64, [3], bytes_field(3, b"\x01" * 1_000_000)))
    assert made == []


def test_tensors_are_counted() -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    names = [{"name": str(number)} for number in range(MAX_TENSORS + 1)]
    for head in ({"inputs": [tensor], "outputs": names}, {"inputs": [{**tensor, **name} for name in names]}):
        with pytest.raises(RequestFailure, match=f"up to {MAX_TENSORS} inputs and outputs"):
            decode_request(memoryview(json.dumps(head).encode()), None)
    assert "up to" in refused(small(*[bytes_field(6, text_field(1, name["name"])) for name in names]))
    # As many as allowed, of different names, are read in one pass.
    asked = decode_request(memoryview(json.dumps({"inputs": [tensor], "outputs": names[:-1]}).encode()), None)
    assert asked.outputs is not None and len(asked.outputs) == MAX_TENSORS


@pytest.mark.parametrize("datatype", [one for one in rpc_requests._CONTENTS if one.numpy.kind in "iu"])
def test_numbers_of_any_length_come_out_as_they_went_in(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.numpy)
    field = rpc_requests._CONTENTS[datatype]
    values = [0, 1, 127, limits.max, limits.min, limits.max // 2] * 40_000
    packed = b"".join(varint(value) for value in values[:60_000])
    apart = b"".join(number_field(field, value) for value in values[:6])
    whole = bytes_field(field, packed) + apart + bytes_field(field, packed)
    read = Undecoded(memoryview(message(datatype, [120_006], whole))).decode().request.inputs[0].array
    assert read.dtype == datatype.numpy
    assert read.tolist() == values[:60_000] + values[:6] + values[:60_000]


@pytest.mark.parametrize("damage", [b"\x80", b"\x01" + b"\xff" * 10 + b"\x01", b"\xff" * 2_000_000])
def test_numbers_that_are_cut_off_or_too_long_are_damage(damage: bytes) -> None:
    assert "elements do not fill" in refused(message(Datatype.INT64, [7], bytes_field(3, damage)))
    count = sum(octet < 0x80 for octet in damage)
    assert "not a valid protobuf" in refused(message(Datatype.INT64, [count], bytes_field(3, damage)))


def test_what_takes_long_to_read_is_known_beforehand() -> None:
    numbers = message(Datatype.INT64, [MANY], bytes_field(3, b"\x01" * MANY))
    texts = text_field(1, "m") + bytes_field(5, text_field(1, "x") + text_field(2, "BYTES") + packed_field(3, [9]))
    assert Undecoded(memoryview(numbers)).heavy
    assert Undecoded(memoryview(texts + bytes_field(7, bytes(MANY)))).heavy
    # Raw numbers are taken as they lie, however many there are.
    raw = texts.replace(b"BYTES", b"INT64") + bytes_field(7, bytes(MANY))
    assert not Undecoded(memoryview(raw)).heavy
    assert not Undecoded(memoryview(small())).heavy


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(echo_model(Datatype.BYTES)) as started:
        yield started


def binary_texts(count: int, padding: int = 0) -> tuple[bytes, dict[str, str]]:
    """A request with so many empty texts behind a head with so many blanks."""
    data = bytes(4 * count)
    tensor = {"name": "x", "datatype": "BYTES", "shape": [1, count], "parameters": {"binary_data_size": len(data)}}
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode() + b" " * padding
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


@pytest.mark.parametrize(("count", "padding"), [(MANY // 4, 0), (1, MANY)], ids=["texts", "a long head"])
def test_what_takes_long_to_read_over_http_holds_up_nobody(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch, count: int, padding: int
) -> None:
    readers: list[threading.Thread] = []

    def noted(*given: Any) -> Any:
        readers.append(threading.current_thread())
        return decode_request(*given)

    monkeypatch.setattr("slipway_runtime.http.inference.decode_request", noted)
    body, headers = binary_texts(count, padding)
    assert fetch(server.address, "POST", INFER, body, headers)[0] == 200
    assert [reader.name for reader in readers] == ["codec_0"]


def test_what_takes_long_to_read_over_grpc_holds_up_nobody(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops = server.on_loop(threading.current_thread)
    readers: list[threading.Thread] = []
    decode = Undecoded.decode

    def noted(request: Undecoded) -> Any:
        readers.append(threading.current_thread())
        return decode(request)

    monkeypatch.setattr(Undecoded, "decode", noted)
    data = message(Datatype.BYTES, [1, MANY // 2], bytes_field(8, b"") * (MANY // 2))
    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        assert call(data, timeout=60)
        assert call(message(Datatype.BYTES, [1, 1], bytes_field(8, b"")), timeout=60)
    assert [reader is loops for reader in readers] == [False, True]
