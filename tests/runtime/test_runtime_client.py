"""tritonclient, unmodified: every call it offers over HTTP that this server answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import FunctionModel, ServerThread, echo, echo_model

MODEL = "my model"
SAMPLES: dict[Datatype, Any] = {
    Datatype.BOOL: np.array([[True, False, True]]),
    Datatype.UINT8: np.array([[0, 255]], dtype=np.uint8),
    Datatype.UINT16: np.array([[0, 65535]], dtype=np.uint16),
    Datatype.UINT32: np.array([[0, 2**32 - 1]], dtype=np.uint32),
    Datatype.UINT64: np.array([[0, 2**64 - 1]], dtype=np.uint64),
    Datatype.INT8: np.array([[-128, 127]], dtype=np.int8),
    Datatype.INT16: np.array([[-(2**15)]], dtype=np.int16),
    Datatype.INT32: np.array([[-(2**31)]], dtype=np.int32),
    Datatype.INT64: np.array([[-(2**63)]], dtype=np.int64),
    Datatype.FP16: np.array([[0.5, -2]], dtype=np.float16),
    Datatype.FP32: np.array([[0.1, 3.4e38]], dtype=np.float32),
    Datatype.FP64: np.array([[0.1, 1e300]], dtype=np.float64),
    Datatype.BF16: np.array([[1.5, -0.125]], dtype=ml_dtypes.bfloat16),
    Datatype.BYTES: np.array([[b"one", "zw\u00f6lf".encode(), b""]], dtype=object),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    """Its model gives back every input ``x_<datatype>`` that was sent, as ``y_<datatype>``."""
    signature = Signature(
        tuple(TensorSpec("x", one, (-1, -1)) for one in [Datatype.FP32]),
        (TensorSpec("y", Datatype.FP32, (-1, -1)),),
        batched=False,
        open=True,
    )
    with ServerThread(FunctionModel(signature, echo)) as started:
        yield started


@pytest.fixture
def client(server: ServerThread) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.address) as opened:
        yield opened


def sent(array: Any, datatype: Datatype, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("x", list(array.shape), str(datatype))
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def assert_same(result: Any, array: Any) -> None:
    received = result.as_numpy("y")
    assert received.dtype == array.dtype
    assert received.shape == array.shape
    assert received.tolist() == array.tolist()


@pytest.mark.parametrize("datatype", Datatype)
def test_every_datatype_in_binary(client: triton.InferenceServerClient, datatype: Datatype) -> None:
    array = SAMPLES[datatype]
    assert_same(client.infer(MODEL, [sent(array, datatype)]), array)


@pytest.mark.parametrize("datatype", [one for one in Datatype if one.has_json_form])
@pytest.mark.parametrize("binary_output", [True, False])
def test_every_datatype_in_json(client: triton.InferenceServerClient, datatype: Datatype, binary_output: bool) -> None:
    array = SAMPLES[datatype]
    wanted = [triton.InferRequestedOutput("y", binary_data=binary_output)]
    result = client.infer(MODEL, [sent(array, datatype, binary=False)], outputs=wanted)
    received = result.as_numpy("y")
    assert received.shape == array.shape
    if datatype is Datatype.BYTES and not binary_output:
        assert received.reshape(-1).tolist() == [one.decode() for one in array.reshape(-1)]
    else:
        assert received.tolist() == array.tolist()


def test_nan_in_json_both_ways(client: triton.InferenceServerClient) -> None:
    array = np.array([[1.0, np.nan]], dtype=np.float32)
    wanted = [triton.InferRequestedOutput("y", binary_data=False)]
    received = client.infer(MODEL, [sent(array, Datatype.FP32, binary=False)], outputs=wanted).as_numpy("y")
    assert np.array_equal(received, array, equal_nan=True)


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_half_precision_as_json_is_refused_with_advice(
    client: triton.InferenceServerClient, datatype: Datatype
) -> None:
    wanted = [triton.InferRequestedOutput("y", binary_data=False)]
    with pytest.raises(InferenceServerException, match=r"output 'y' is .*request binary data") as caught:
        client.infer(MODEL, [sent(SAMPLES[datatype], datatype)], outputs=wanted)
    assert caught.value.status() == "400"


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)], ids=str)
@pytest.mark.parametrize("binary", [True, False])
def test_scalars_and_empty_tensors(client: triton.InferenceServerClient, shape: tuple[int, ...], binary: bool) -> None:
    array = np.full(shape, 2.5, dtype=np.float32)
    wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
    received = client.infer(MODEL, [sent(array, Datatype.FP32, binary)], outputs=wanted).as_numpy("y")
    # tritonclient reads an empty binary output as a flat array.
    assert received.size == array.size and received.tolist() in (array.tolist(), [])


@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("answer_coding", [None, "gzip", "deflate"])
def test_compression(
    client: triton.InferenceServerClient, request_coding: str | None, answer_coding: str | None
) -> None:
    array = np.arange(40_000, dtype=np.float32).reshape(1, -1)
    result = client.infer(
        MODEL,
        [sent(array, Datatype.FP32)],
        request_compression_algorithm=request_coding,
        response_compression_algorithm=answer_coding,
    )
    assert_same(result, array)


def test_id_version_and_names_come_back(client: triton.InferenceServerClient) -> None:
    result = client.infer(MODEL, [sent(SAMPLES[Datatype.FP32], Datatype.FP32)], model_version="v1", request_id="r 7")
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == (MODEL, "v1", "r 7")


def test_parameters_of_the_protocol_are_taken(client: triton.InferenceServerClient) -> None:
    result = client.infer(
        MODEL,
        [sent(SAMPLES[Datatype.FP32], Datatype.FP32)],
        sequence_id=3,
        sequence_start=True,
        priority=2,
        timeout=5_000_000,
        parameters={"a": 1, "b": "two", "c": 0.5},
    )
    assert_same(result, SAMPLES[Datatype.FP32])


def test_many_requests_at_once(server: ServerThread) -> None:
    with triton.InferenceServerClient(server.address, concurrency=8) as client:
        arrays = [np.full((1, 3), number, dtype=np.float32) for number in range(50)]
        waiting = [client.async_infer(MODEL, [sent(array, Datatype.FP32)]) for array in arrays]
        for array, one in zip(arrays, waiting, strict=True):
            assert_same(one.get_result(), array)


def test_health_metadata_and_configuration(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "v1")
    assert not client.is_model_ready("other")
    assert not client.is_model_ready(MODEL, "v9")
    assert client.get_server_metadata()["name"] == "slipway-runtime"
    assert client.get_model_metadata(MODEL) == {
        "name": MODEL,
        "versions": ["v1"],
        "platform": "test",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, -1]}],
        "parameters": {"sha256": ""},
    }
    assert client.get_model_metadata(MODEL, "v1")["versions"] == ["v1"]
    assert client.get_model_config(MODEL)["max_batch_size"] == 0
    assert client.get_model_repository_index() == [{"name": MODEL, "version": "v1", "state": "READY", "reason": ""}]


def test_statistics_count_requests_and_executions(server: ServerThread, client: triton.InferenceServerClient) -> None:
    def entry() -> Any:
        (one,) = client.get_inference_statistics(MODEL, "v1")["model_stats"]
        return one

    before = entry()
    client.infer(MODEL, [sent(SAMPLES[Datatype.FP32], Datatype.FP32)])
    with pytest.raises(InferenceServerException):
        client.infer(MODEL, [sent(SAMPLES[Datatype.FP32], Datatype.FP32)], outputs=[triton.InferRequestedOutput("z")])
    after = entry()
    assert after["execution_count"] - before["execution_count"] == 2
    for kind in ("success", "fail"):
        assert after["inference_stats"][kind]["count"] - before["inference_stats"][kind]["count"] == 1
    assert client.get_inference_statistics()["model_stats"] == client.get_inference_statistics(MODEL)["model_stats"]


def test_what_is_not_offered_says_so(client: triton.InferenceServerClient) -> None:
    assert client.get_system_shared_memory_status() == []
    assert client.get_cuda_shared_memory_status() == []
    calls = [
        lambda: client.register_system_shared_memory("r", "/r", 8),
        lambda: client.unregister_cuda_shared_memory(),
        lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        lambda: client.update_log_settings({"log_error": False}),
        lambda: client.update_log_settings({"log_verbose_level": 1}),
    ]
    for call in calls:
        with pytest.raises(InferenceServerException) as caught:
            call()
        assert caught.value.status() == "501"
    for change in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="does not change its models") as caught:
            change(MODEL)
        assert caught.value.status() == "403"


def test_settings_can_be_read(client: triton.InferenceServerClient) -> None:
    assert client.get_trace_settings(MODEL)["trace_level"] == ["OFF"]
    assert client.get_log_settings()["log_info"] is True
    assert client.update_log_settings({"log_info": True})["log_verbose_level"] == 0
    with pytest.raises(InferenceServerException, match="no setting 'volume'"):
        client.update_log_settings({"volume": 11})


def test_errors_are_readable(client: triton.InferenceServerClient) -> None:
    cases = {"other": ("404", "no model 'other'"), MODEL: ("404", "no version 'v9'")}
    for name, (status, words) in cases.items():
        with pytest.raises(InferenceServerException, match=words) as caught:
            client.infer(
                name, [sent(SAMPLES[Datatype.FP32], Datatype.FP32)], model_version="v9" if name == MODEL else ""
            )
        assert caught.value.status() == status
    with pytest.raises(InferenceServerException, match="unknown input 'x2'"):
        extra = triton.InferInput("x2", [1], "FP32")
        extra.set_data_from_numpy(np.ones(1, dtype=np.float32))
        client.infer(MODEL, [sent(SAMPLES[Datatype.FP32], Datatype.FP32), extra])


def test_classification() -> None:
    model = echo_model(Datatype.FP32, batched=True)
    with ServerThread(model) as server, triton.InferenceServerClient(server.address) as client:
        scores = np.array([[0.1, 0.7, 0.2], [9, 1, 5]], dtype=np.float32)
        wanted = [triton.InferRequestedOutput("y", class_count=2)]
        received = client.infer(MODEL, [sent(scores, Datatype.FP32)], outputs=wanted).as_numpy("y")
        assert received.tolist() == [[b"0.700000:1", b"0.200000:2"], [b"9.000000:0", b"5.000000:2"]]


async def test_aio_client(server: ServerThread) -> None:
    async with triton_aio.InferenceServerClient(server.address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready(MODEL)
        assert (await client.get_server_metadata())["name"] == "slipway-runtime"
        assert (await client.get_model_metadata(MODEL))["name"] == MODEL
        assert (await client.get_model_config(MODEL))["name"] == MODEL
        assert (await client.get_model_repository_index())[0]["state"] == "READY"
        assert (await client.get_inference_statistics(MODEL))["model_stats"][0]["name"] == MODEL
        for datatype, array in SAMPLES.items():
            assert_same(await client.infer(MODEL, [sent(array, datatype)], request_id="a"), array)
        for coding in ("gzip", "deflate"):
            array = np.arange(10, dtype=np.float32)
            result = await client.infer(
                MODEL,
                [sent(array, Datatype.FP32)],
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )
            assert_same(result, array)
        with pytest.raises(InferenceServerException, match="no model 'other'"):
            await client.infer("other", [sent(SAMPLES[Datatype.FP32], Datatype.FP32)])


def test_answers_carry_the_version(server: ServerThread) -> None:
    from tests.runtime.harness import INFER, fetch, json_request

    for body, status in ((json_request([[1.0]]), 200), (b"{}", 400)):
        code, _, headers = fetch(server.address, "POST", INFER, body)
        assert (code, headers["x-model-version"]) == (status, "v1")


def test_tensors_of_the_model_are_checked_by_name() -> None:
    def swap(inputs: Any) -> tuple[Tensor, ...]:
        by_name = {one.name: one for one in inputs}
        return (Tensor("sum", Datatype.FP32, by_name["a"].array - by_name["b"].array),)

    specs = (TensorSpec("a", Datatype.FP32, (-1, 2)), TensorSpec("b", Datatype.FP32, (-1, 2)))
    model = FunctionModel(Signature(specs, (TensorSpec("sum", Datatype.FP32, (-1, 2)),), True), swap)
    with ServerThread(model) as server, triton.InferenceServerClient(server.address) as client:
        tensors = []
        for name, value in (("b", 1.0), ("a", 5.0)):
            tensor = triton.InferInput(name, [1, 2], "FP32")
            tensors.append(tensor.set_data_from_numpy(np.full((1, 2), value, dtype=np.float32)))
        assert client.infer(MODEL, tensors).as_numpy("sum").tolist() == [[4.0, 4.0]]
        for wrong, words in (([tensors[0]], "input 'a' is missing"), (tensors * 2, "twice")):
            with pytest.raises(InferenceServerException, match=words):
                client.infer(MODEL, wrong)
        short = triton.InferInput("b", [2, 2], "FP32")
        short.set_data_from_numpy(np.zeros((2, 2), dtype=np.float32))
        with pytest.raises(InferenceServerException, match="rows"):
            client.infer(MODEL, [tensors[1], short])
        wide = triton.InferInput("b", [1, 3], "FP32")
        wide.set_data_from_numpy(np.zeros((1, 3), dtype=np.float32))
        with pytest.raises(InferenceServerException, match=r"input 'b': shape \[1, 3\]"):
            client.infer(MODEL, [tensors[1], wide])
