"""Tensors on the wire: every datatype survives, every lie about one is named."""

from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from slipway_runtime.protocol.answer import infer_answer
from slipway_runtime.protocol.failures import RequestFailure, invalid
from slipway_runtime.protocol.jsondata import decode_json
from slipway_runtime.protocol.rawdata import decode_raw, encode_raw
from slipway_runtime.protocol.request import InferRequest, RequestedOutput, decode_request
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

NUMERIC = [one for one in Datatype if one is not Datatype.BYTES]
JSON_NUMERIC = [one for one in NUMERIC if one.has_json_form]
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
OPEN = Signature((), (), batched=False, open=True)


def arrays(datatype: Datatype) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    if datatype is Datatype.BYTES:
        return npst.arrays(object, SHAPES, elements=st.binary(max_size=20), fill=st.nothing())
    return npst.arrays(datatype.numpy, SHAPES)


tensors = st.sampled_from(list(Datatype)).flatmap(
    lambda datatype: arrays(datatype).map(lambda array: Tensor("x", datatype, array))
)


def identical(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.dtype == object:
        return left.shape == right.shape and bool(left.tolist() == right.tolist())
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(tensors)
def test_binary_data_survives_a_round_trip(tensor: Tensor) -> None:
    raw = encode_raw(tensor.datatype, tensor.array)
    assert identical(decode_raw("x", tensor.datatype, tensor.shape, raw), tensor.array)


@given(arrays(Datatype.BYTES))
def test_bytes_are_what_tritonclient_writes_and_reads(array: np.ndarray[Any, Any]) -> None:
    ours = bytes(encode_raw(Datatype.BYTES, array))
    if array.size:
        assert ours == serialize_byte_tensor(array).item()
    assert list(deserialize_bytes_tensor(ours)) == array.reshape(-1).tolist()


@given(npst.arrays(np.float32, SHAPES, elements=st.floats(width=32)))
def test_bf16_bits_are_what_ml_dtypes_holds(array: np.ndarray[Any, Any]) -> None:
    half = array.astype(ml_dtypes.bfloat16)
    bits = decode_raw("x", Datatype.BF16, half.shape, memoryview(half.tobytes()))
    assert identical(bits.view(ml_dtypes.bfloat16), half)


def whole_request(tensor: Tensor, binary: bool) -> tuple[memoryview, str | None]:
    entry: dict[str, Any] = {"name": "x", "datatype": tensor.datatype, "shape": tensor.shape}
    if not binary:
        entry["data"] = tensor.array.reshape(-1).tolist()
        return memoryview(json.dumps({"inputs": [entry]}).encode()), None
    raw = bytes(encode_raw(tensor.datatype, tensor.array))
    entry["parameters"] = {"binary_data_size": len(raw)}
    head = json.dumps({"inputs": [entry]}).encode()
    return memoryview(bytearray(head + raw)), str(len(head))


@given(tensors)
def test_requests_with_binary_data_decode(tensor: Tensor) -> None:
    (decoded,) = decode_request(*whole_request(tensor, binary=True)).inputs
    assert identical(decoded.array, tensor.array)


@given(st.sampled_from(JSON_NUMERIC).flatmap(lambda one: arrays(one).map(lambda array: Tensor("x", one, array))))
def test_requests_with_json_data_decode(tensor: Tensor) -> None:
    """NaN and the infinities as the bare tokens that tritonclient sends."""
    (decoded,) = decode_request(*whole_request(tensor, binary=False)).inputs
    assert decoded.array.dtype == tensor.array.dtype
    assert np.array_equal(decoded.array, tensor.array, equal_nan=tensor.datatype.is_float)


@given(npst.arrays(object, SHAPES, elements=st.text(max_size=10), fill=st.nothing()))
def test_strings_in_json_decode(array: np.ndarray[Any, Any]) -> None:
    decoded = decode_json("x", Datatype.BYTES, array.shape, array.reshape(-1).tolist())
    assert decoded.shape == array.shape
    assert [one.decode() for one in decoded.reshape(-1)] == array.reshape(-1).tolist()


@given(tensors, st.booleans())
def test_answers_decode_as_clients_decode_them(tensor: Tensor, binary: bool) -> None:
    request = InferRequest((), (RequestedOutput("x", binary),), id="17")
    try:
        answer = infer_answer("m", "v", request, [tensor], OPEN)
    except RequestFailure as failure:
        assert failure.status == 400 and "'x'" in failure.text
        assert not binary
        return
    headers = dict(answer.headers)
    body = b"".join(answer.body)
    length = headers.get("Inference-Header-Content-Length")
    assert (length is not None) == binary
    head = json.loads(body[: int(length)] if length else body)
    assert head["id"] == "17" and head["model_version"] == "v"
    (output,) = head["outputs"]
    assert tuple(output["shape"]) == tensor.shape
    if binary:
        raw = memoryview(body)[int(length or 0) :]
        assert output["parameters"]["binary_data_size"] == len(raw)
        assert identical(decode_raw("x", tensor.datatype, tensor.shape, raw), tensor.array)
    elif tensor.datatype is not Datatype.BYTES:
        values = [math.nan if one is None else one for one in output["data"]]
        expected = (
            np.where(np.isfinite(tensor.array), tensor.array, np.nan) if tensor.datatype.is_float else tensor.array
        )
        assert np.array_equal(np.array(values, dtype=tensor.array.dtype), expected.reshape(-1), equal_nan=True) or (
            tensor.datatype is not Datatype.FP32 and values == tensor.array.reshape(-1).tolist()
        )


def request_of(**changes: Any) -> bytes:
    entry = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]} | changes
    return json.dumps({"inputs": [{key: value for key, value in entry.items() if value is not ...}]}).encode()


BAD_REQUESTS: dict[str, tuple[bytes, str | None, str]] = {
    "no JSON": (b"hello", None, "not valid JSON"),
    "empty": (b"", None, "not valid JSON"),
    "a list": (b"[]", None, "not valid"),
    "no inputs": (b"{}", None, "inputs"),
    "empty inputs": (b'{"inputs": []}', None, "no inputs"),
    "inputs null": (b'{"inputs": null}', None, "inputs"),
    "deep nesting": (b'{"inputs": ' + b"[" * 100_000, None, ""),
    "deep data": (b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":' + b"[" * 9000 + b"]" * 9000 + b"}]}",
                  None, "deep"),
    "deeper than an array": (request_of(data=[[[[[[1]]]]]] * 2, shape=[3]), None, "elements"),
    "no name": (request_of(name=...), None, "name"),
    "no shape": (request_of(shape=...), None, "shape"),
    "no data": (request_of(data=...), None, "neither data"),
    "unknown datatype": (request_of(datatype="FP33"), None, "unknown datatype"),
    "negative shape": (request_of(shape=[-2]), None, "shape"),
    "bool shape": (request_of(shape=[True]), None, "shape"),
    "float shape": (request_of(shape=[2.5]), None, "shape"),
    "string shape": (request_of(shape="2"), None, "shape"),
    "huge shape": (request_of(shape=[2**62, 4]), None, "elements"),
    "huge and empty shape": (request_of(shape=[0, 2**62, 4], data=[]), None, "elements"),
    "rank": (request_of(shape=[1] * 33), None, "dimensions"),
    "too few elements": (request_of(shape=[3]), None, "2 elements"),
    "ragged": (request_of(data=[[1], [1, 2]]), None, "'x'"),
    "string among numbers": (request_of(data=[1, "2"]), None, "'x'"),
    "object among numbers": (request_of(data=[1, {}]), None, "'x'"),
    "data no list": (request_of(data="12"), None, "list"),
    "null in integers": (request_of(datatype="INT32", data=[1, None]), None, "'x'"),
    "float in integers": (request_of(datatype="INT32", data=[1, 1.5]), None, "INT32"),
    "out of range": (request_of(datatype="INT8", data=[1, 128]), None, "range"),
    "negative unsigned": (request_of(datatype="UINT64", data=[1, -1]), None, "range"),
    "too large for 64": (request_of(datatype="UINT64", data=[1, 2**64]), None, "UINT64"),
    "number as bool": (request_of(datatype="BOOL", data=[1, 0]), None, "BOOL"),
    "bool among floats": (request_of(data=[True, 1.5]), None, "FP32"),
    "bool among nested floats": (request_of(shape=[1, 2], data=[[True, 1.5]]), None, "FP32"),
    "bool among null and floats": (request_of(data=[True, None]), None, "FP32"),
    "bool among integers": (request_of(datatype="INT8", data=[True, 1]), None, "INT8"),
    "whole float among integers": (request_of(datatype="INT8", data=[1.0, 1]), None, "INT8"),
    "number as bytes": (request_of(datatype="BYTES", data=[1, 0]), None, "strings"),
    "fp16 as json": (request_of(datatype="FP16"), None, "binary"),
    "bf16 as json": (request_of(datatype="BF16"), None, "binary"),
    "twice": (b'{"inputs":[%s,%s]}' % ((b'{"name":"x","shape":[0],"datatype":"FP32","data":[]}',) * 2), None, "twice"),
    "data and binary": (request_of(parameters={"binary_data_size": 0}), None, "both"),
    "binary size negative": (request_of(data=..., parameters={"binary_data_size": -1}), None, "binary_data_size"),
    "binary size bool": (request_of(data=..., parameters={"binary_data_size": True}), None, "binary_data_size"),
    "binary size huge": (request_of(data=..., parameters={"binary_data_size": 2**63}), None, "larger"),
    "shared memory": (request_of(parameters={"shared_memory_region": "r"}), None, "shared memory"),
    "timeout": (b'{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}],"parameters":{"timeout":"1"}}', None,
                "timeout"),
    "output flag": (b'{"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":[]}],"outputs":[{"name":"y",'
                    b'"parameters":{"binary_data":1}}]}', None, "binary_data"),
    "half a surrogate pair as name": (request_of(name="\ud800"), None, "not valid JSON"),
    "half a surrogate pair as data": (request_of(datatype="BYTES", data=["\ud800", "b"]), None, "surrogate"),
    **{
        f"half a surrogate pair in {next(iter(part))}": (json.dumps({"inputs": []} | part).encode(), None, "valid JSON")
        for part in ({"id": "\ud800"}, {"outputs": [{"name": "\udfff"}]}, {"parameters": {"\ud800": 1}})
    },
    "trailing bytes": (request_of() + b"1234", str(len(request_of())), "no input"),
    **{
        f"head length {text!r}": (request_of(), text, "Inference-Header-Content-Length")
        for text in ("-1", "0", "abc", "", "+5", "1_0", str(2**31), str(2**63), "9" * 30, "1.5", "٣")
    },
}  # fmt: skip


def test_what_is_said_of_a_long_name_is_short() -> None:
    failure = invalid(f"unknown output '{'q' * 5_000_000}'")
    assert failure.text.startswith("unknown output 'qqq") and len(failure.text) == 501


@pytest.mark.parametrize(("body", "length", "words"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_a_bad_request_is_the_clients_fault_and_says_what_is_wrong(body: bytes, length: str | None, words: str) -> None:
    with pytest.raises(RequestFailure) as caught:
        decode_request(memoryview(body), length)
    assert caught.value.status == 400
    assert words in caught.value.text


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        (Datatype.FP32, (2,), b"1234567"),
        (Datatype.FP32, (0,), b"1"),
        (Datatype.BOOL, (2,), b"\x00\x02"),
        (Datatype.BYTES, (1,), b""),
        (Datatype.BYTES, (1,), b"\x01\x00\x00"),
        (Datatype.BYTES, (1,), b"\x05\x00\x00\x00abcd"),
        (Datatype.BYTES, (1,), b"\xff\xff\xff\xffabcd"),
        (Datatype.BYTES, (1,), b"\x00\x00\x00\x00\x00\x00\x00\x00"),
        (Datatype.BYTES, (2,), b"\x04\x00\x00\x00abcd"),
        (Datatype.BYTES, (2**30,), b"\x00\x00\x00\x00"),
    ],
)
def test_bad_binary_data_names_the_input(datatype: Datatype, shape: tuple[int, ...], data: bytes) -> None:
    with pytest.raises(RequestFailure) as caught:
        decode_raw("tokens", datatype, shape, memoryview(data))
    assert caught.value.status == 400 and "'tokens'" in caught.value.text


@given(st.binary(max_size=200), st.one_of(st.none(), st.integers(-5, 300).map(str)))
def test_no_bytes_break_the_decoder(body: bytes, length: str | None) -> None:
    with pytest.raises(RequestFailure):
        decode_request(memoryview(body), length)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=6,
)
plausible_inputs = st.fixed_dictionaries(
    {
        "name": st.one_of(st.just("x"), values),
        "shape": st.one_of(st.lists(st.integers(0, 3), max_size=2), values),
        "datatype": st.one_of(st.sampled_from(list(Datatype)), values),
        "data": st.one_of(st.lists(st.integers(0, 1), max_size=6), values),
    },
    optional={"parameters": values},
)
plausible_requests = st.fixed_dictionaries(
    {"inputs": st.one_of(st.lists(plausible_inputs, max_size=2), values)},
    optional={"id": values, "parameters": values, "outputs": values},
)


@given(plausible_requests)
def test_a_plausible_request_is_taken_or_refused(document: Any) -> None:
    """Whatever stands in a field: a decoded request or a RequestFailure, never another exception."""
    try:
        request = decode_request(memoryview(json.dumps(document).encode()), None)
    except RequestFailure as failure:
        assert 400 <= failure.status < 500
        return
    for tensor, entry in zip(request.inputs, document["inputs"], strict=True):
        assert tensor.shape == tuple(entry["shape"])
        assert tensor.array.dtype == tensor.datatype.numpy


def test_null_among_floats_is_nan_and_nested_lists_are_taken() -> None:
    array = decode_json("x", Datatype.FP32, (2, 2), [[1, None], [3.5, 4]])
    assert np.array_equal(array, np.array([[1, np.nan], [3.5, 4]], dtype=np.float32), equal_nan=True)


def test_binary_tensors_are_views_of_the_body() -> None:
    tensor = Tensor("x", Datatype.FP32, np.ones((3, 2), dtype=np.float32))
    body, length = whole_request(tensor, binary=True)
    (decoded,) = decode_request(body, length).inputs
    body[-4:] = np.float32(7).tobytes()
    assert decoded.array[2, 1] == 7
    assert decoded.array.flags.writeable
