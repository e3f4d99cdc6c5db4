"""tritonclient over gRPC, unmodified, and raw calls for what it does not send."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.listener import address_of
from slipway_runtime.serving.service import Phase
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec
from tritonclient.grpc import service_pb2 as messages
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import (
    PATIENCE,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    echo,
    echo_model,
    row_signature,
)
from tests.runtime.test_runtime_client import SAMPLES

MODEL = "my model"
SERVICE = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    signature = Signature(
        (TensorSpec("x", Datatype.FP32, (-1, -1)),), (TensorSpec("y", Datatype.FP32, (-1, -1)),), False, open=True
    )
    with ServerThread(FunctionModel(signature, echo)) as started:
        yield started


@pytest.fixture
def client(server: ServerThread) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc_address) as opened:
        yield opened


def sent(array: Any, datatype: Datatype = Datatype.FP32) -> triton.InferInput:
    tensor = triton.InferInput("x", list(array.shape), str(datatype))
    tensor.set_data_from_numpy(array)
    return tensor


def call(address: str, method: str, data: bytes, timeout: float = 20.0) -> bytes:
    with grpc.insecure_channel(address) as channel:
        return bytes(channel.unary_unary(method)(data, timeout=timeout))


def refused(address: str, request: Any, method: str = "ModelInfer") -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(address, SERVICE + method, request.SerializeToString())
    return caught.value.code(), caught.value.details()


def a_request(**fields: Any) -> Any:
    return messages.ModelInferRequest(model_name=MODEL, **fields)


def with_input(datatype: str = "FP32", shape: tuple[int, ...] = (1, 2), **contents: Any) -> Any:
    request = a_request()
    tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
    for name, values in contents.items():
        getattr(tensor.contents, name).extend(values)
    return request


@pytest.mark.parametrize("datatype", Datatype)
def test_every_datatype(client: triton.InferenceServerClient, datatype: Datatype) -> None:
    array = SAMPLES[datatype]
    result = client.infer(MODEL, [sent(array, datatype)], request_id="r-1")
    received = result.as_numpy("y")
    assert received.dtype == array.dtype
    assert received.tolist() == array.tolist()
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("r-1", MODEL, "v1")


@pytest.mark.parametrize("array", [np.array(5, dtype=np.float32), np.zeros((0, 3), dtype=np.float32)])
def test_scalars_and_empty_tensors(client: triton.InferenceServerClient, array: Any) -> None:
    received = client.infer(MODEL, [sent(array)]).as_numpy("y")
    assert (received.shape, received.tolist()) == (array.shape, array.tolist())


@pytest.mark.parametrize(
    ("datatype", "contents", "expected"),
    [
        ("BOOL", {"bool_contents": [True, False]}, [True, False]),
        ("INT8", {"int_contents": [-128, 127]}, [-128, 127]),
        ("INT32", {"int_contents": [-(2**31), 5]}, [-(2**31), 5]),
        ("INT64", {"int64_contents": [-(2**63), 5]}, [-(2**63), 5]),
        ("UINT16", {"uint_contents": [0, 65535]}, [0, 65535]),
        ("UINT64", {"uint64_contents": [0, 2**64 - 1]}, [0, 2**64 - 1]),
        ("FP32", {"fp32_contents": [0.5, -1.5]}, [0.5, -1.5]),
        ("FP64", {"fp64_contents": [0.1, 1e300]}, [0.1, 1e300]),
    ],
)
def test_typed_contents(server: ServerThread, datatype: str, contents: dict[str, Any], expected: list[Any]) -> None:
    answer = call(server.grpc_address, SERVICE + "ModelInfer", with_input(datatype, **contents).SerializeToString())
    response = messages.ModelInferResponse.FromString(answer)
    dtype = Datatype(datatype).numpy
    assert np.frombuffer(response.raw_output_contents[0], dtype=dtype).tolist() == expected


def test_typed_bytes(server: ServerThread) -> None:
    request = with_input("BYTES", bytes_contents=[b"a", b"bc"])
    response = messages.ModelInferResponse.FromString(
        call(server.grpc_address, SERVICE + "ModelInfer", request.SerializeToString())
    )
    assert response.raw_output_contents[0] == b"\x01\x00\x00\x00a\x02\x00\x00\x00bc"


def test_everything_the_client_can_ask(server: ServerThread, client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "v1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata().name == "slipway-runtime"
    metadata = client.get_model_metadata(MODEL)
    assert (metadata.inputs[0].name, metadata.inputs[0].datatype, metadata.inputs[0].shape) == ("x", "FP32", [-1, -1])
    config = client.get_model_config(MODEL).config
    assert (config.name, config.input[0].data_type, config.instance_group[0].kind) == (MODEL, 11, 2)
    client.infer(MODEL, [sent(SAMPLES[Datatype.FP32])])
    statistics = client.get_inference_statistics(MODEL).model_stats[0]
    assert statistics.inference_stats.success.count > 0
    assert statistics.execution_count > 0
    [entry] = client.get_model_repository_index().models
    assert (entry.name, entry.version, entry.state) == (MODEL, "v1", "READY")
    assert client.get_trace_settings(MODEL).settings["trace_level"].value == ["OFF"]
    assert client.get_log_settings().settings["log_info"].bool_param
    assert client.update_log_settings({"log_info": True}).settings["log_format"].string_param == "default"
    assert client.get_system_shared_memory_status().regions == {}
    assert client.get_cuda_shared_memory_status().regions == {}


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda c: c.load_model(MODEL), "PERMISSION_DENIED"),
        (lambda c: c.unload_model(MODEL), "PERMISSION_DENIED"),
        (lambda c: c.register_system_shared_memory("r", "/k", 8), "UNIMPLEMENTED"),
        (lambda c: c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}), "UNIMPLEMENTED"),
        (lambda c: c.update_log_settings({"log_verbose_level": 3}), "UNIMPLEMENTED"),
        (lambda c: c.get_model_metadata("other"), "NOT_FOUND"),
        (lambda c: c.get_model_config(MODEL, "v9"), "NOT_FOUND"),
        (lambda c: c.get_inference_statistics("other"), "NOT_FOUND"),
        (lambda c: c.infer("other", [sent(np.zeros((1, 1), np.float32))]), "NOT_FOUND"),
        (lambda c: c.infer(MODEL, [sent(np.zeros((1, 1), np.float32))], model_version="v9"), "NOT_FOUND"),
    ],
)
def test_what_is_not_offered_says_so(client: triton.InferenceServerClient, ask: Any, code: str) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(client)
    assert caught.value.status() == f"StatusCode.{code}"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (a_request(), "no inputs"),
        (with_input("FP32", fp32_contents=[1.0]), "do not fill shape"),
        (with_input("INT8", int_contents=[1, 300]), "out of the range"),
        (with_input("FP16", fp32_contents=[1.0, 2.0]), "no typed contents"),
        (with_input("INT8", fp32_contents=[1.0, 2.0]), "not those of INT8"),
        (with_input("FP99", fp32_contents=[1.0]), "unknown datatype"),
        (with_input("FP32", (-1, 2), fp32_contents=[1.0]), "dimensions of 0 or more"),
    ],
)
def test_bad_requests(server: ServerThread, request_: Any, words: str) -> None:
    code, text = refused(server.grpc_address, request_)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words in text


def test_raw_and_typed_contents_do_not_mix(server: ServerThread) -> None:
    both = with_input("FP32", fp32_contents=[1.0, 2.0])
    both.raw_input_contents.append(b"\x00" * 8)
    assert "both contents and raw" in refused(server.grpc_address, both)[1]
    many = with_input("FP32")
    many.raw_input_contents.extend([b"\x00" * 8] * 2)
    assert "2 raw_input_contents for 1 inputs" in refused(server.grpc_address, many)[1]
    short = with_input("FP32")
    short.raw_input_contents.append(b"\x00" * 7)
    assert "7 bytes" in refused(server.grpc_address, short)[1]


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05ab", b"\x2b", b"\x0a\x02\xff\xfe", b"\x2a\x03\x1a\x02\xff", b"\x08\x01"]
)
def test_damaged_messages(server: ServerThread, data: bytes) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(server.grpc_address, SERVICE + "ModelInfer", data)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_methods_and_large_messages() -> None:
    with ServerThread(FunctionModel(row_signature(), echo), Limits(max_request_bytes=1000)) as server:
        with pytest.raises(grpc.RpcError) as caught:
            call(server.grpc_address, SERVICE + "Nothing", b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with triton.InferenceServerClient(server.grpc_address) as client:
            with pytest.raises(InferenceServerException, match="larger than max"):
                client.infer(MODEL, [sent(np.zeros((1, 1000), np.float32))])
            assert client.infer(MODEL, [sent(np.zeros((1, 10), np.float32))]) is not None


def test_classification_and_chosen_outputs(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("y", class_count=2)]
    result = client.infer(MODEL, [sent(np.array([[0.1, 0.9, 0.5]], np.float32))], outputs=wanted)
    assert [label.decode().split(":")[1] for label in result.as_numpy("y").reshape(-1)] == ["1", "2"]


def test_requests_are_counted_as_over_http() -> None:
    with ServerThread(FunctionModel(row_signature(), echo)) as server:
        with triton.InferenceServerClient(server.grpc_address) as client:
            client.infer(MODEL, [sent(np.zeros((1, 1), np.float32))])
            client.infer(MODEL, [sent(np.zeros((1, 1), np.float32))], headers={"x-slipway-shadow": "true"})
            with pytest.raises(InferenceServerException):
                client.infer(MODEL, [sent(np.zeros((1, 1), np.int32), Datatype.INT32)])
        metrics = server.metrics()
        assert metrics['slipway_requests_total{code="200",shadow="false"}'] == 1
        assert metrics['slipway_requests_total{code="200",shadow="true"}'] == 1
        assert metrics['slipway_requests_total{code="400",shadow="false"}'] == 1
        assert metrics["slipway_requests_in_flight"] == 0


def test_deadlines_end_the_work() -> None:
    gated = GatedModel()
    with ServerThread(gated) as server, triton.InferenceServerClient(server.grpc_address) as client:
        with pytest.raises(InferenceServerException) as caught:
            client.infer(MODEL, [sent(np.zeros((1, 1), np.float32))], timeout=100_000)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        with pytest.raises(InferenceServerException) as caught:
            client.infer(MODEL, [sent(np.zeros((1, 1), np.float32))], client_timeout=0.1)
        assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        await_condition(lambda: server.on_loop(lambda: server.batcher.unfinished) == 0)
        gated.permit()


def test_cancelled_calls_never_run() -> None:
    gated = GatedModel()
    with ServerThread(gated) as server, triton.InferenceServerClient(server.grpc_address) as client:
        done: queue.Queue[Any] = queue.Queue()
        first = client.async_infer(MODEL, [sent(np.zeros((1, 1), np.float32))], lambda result, error: done.put(error))
        gated.started.get(timeout=PATIENCE)
        second = client.async_infer(MODEL, [sent(np.zeros((2, 1), np.float32))], lambda result, error: done.put(error))
        await_condition(lambda: server.on_loop(lambda: server.batcher.waiting) == 1)
        second.cancel()
        await_condition(lambda: server.on_loop(lambda: server.batcher.waiting) == 0)
        gated.permit()
        del first
        await_condition(lambda: server.metrics().get('slipway_requests_total{code="499",shadow="false"}') == 1)
        await_condition(lambda: server.on_loop(lambda: server.batcher.unfinished) == 0)
        assert gated.executions == [1]


def test_streams_answer_in_order_and_survive_bad_requests(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(20):
        datatype = Datatype.FP32
        array = np.array([[number]], np.float32)
        name = "other" if number == 7 else MODEL
        client.async_stream_infer(name, [sent(array, datatype)], request_id=str(number))
    received = [answers.get(timeout=PATIENCE) for _ in range(20)]
    client.stop_stream()
    for number, (result, error) in enumerate(received):
        if number == 7:
            assert "there is no model" in str(error)
        else:
            assert error is None
            assert result.get_response().id == str(number)
            assert result.as_numpy("y").tolist() == [[number]]


def test_streams_say_which_response_is_the_last(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(MODEL, [sent(np.zeros((1, 1), np.float32))], enable_empty_final_response=True)
    result, error = answers.get(timeout=PATIENCE)
    client.stop_stream()
    assert error is None
    assert result.get_response().parameters["triton_final_response"].bool_param


def test_priority_goes_first() -> None:
    gated = GatedModel()
    with (
        ServerThread(gated, Limits(max_batch_size=1, max_delay=0)) as server,
        triton.InferenceServerClient(server.grpc_address) as client,
    ):
        order: queue.Queue[str] = queue.Queue()

        def send(name: str, priority: int, waiting: int) -> None:
            client.async_infer(
                MODEL, [sent(np.zeros((1, 1), np.float32))], lambda result, error: order.put(name), priority=priority
            )
            await_condition(lambda: server.on_loop(lambda: server.batcher.waiting) == waiting)

        send("first", 0, 0)
        gated.started.get(timeout=PATIENCE)
        send("plain", 0, 1)
        send("low", 9, 2)
        send("high", 1, 3)
        gated.permit()
        assert [order.get(timeout=PATIENCE) for _ in range(4)] == ["first", "high", "low", "plain"]


def test_readiness_follows_the_phase() -> None:
    with (
        ServerThread(echo_model(Datatype.FP32), start=False) as server,
        triton.InferenceServerClient(server.grpc_address) as client,
    ):
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready(MODEL)
        with pytest.raises(InferenceServerException) as caught:
            client.infer(MODEL, [sent(np.zeros((1, 1), np.float32))])
        assert caught.value.status() == "StatusCode.UNAVAILABLE"
        assert call(server.grpc_address, "/grpc.health.v1.Health/Check", b"") == b"\x08\x02"
        server.on_loop(server.start_model)
        assert client.is_server_ready()
        assert call(server.grpc_address, "/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
        server.enter(Phase.DRAINING)
        assert not client.is_server_ready()


async def test_the_asyncio_client(server: ServerThread) -> None:
    async with triton_aio.InferenceServerClient(server.grpc_address) as client:
        assert await client.is_server_ready()
        result = await client.infer(MODEL, [sent(np.ones((2, 2), np.float32))], compression_algorithm="gzip")
        assert result.as_numpy("y").tolist() == [[1, 1], [1, 1]]

        async def requests() -> Any:
            for number in range(3):
                yield {"model_name": MODEL, "inputs": [sent(np.full((1, 1), number, np.float32))]}

        seen = [result.as_numpy("y").item() async for result, error in client.stream_infer(requests()) if not error]
        assert seen == [0, 1, 2]


def test_many_threads_share_a_channel(client: triton.InferenceServerClient) -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(20):
            array = np.full((1, 3), number * 100 + step, np.float32)
            received = client.infer(MODEL, [sent(array)]).as_numpy("y")
            if received.tolist() != array.tolist():
                wrong.append(received)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_answers_to_grpc_are_repeated_too() -> None:
    """The tensors handed to the comparison are those of the request."""
    offered: list[Any] = []

    class Collector:
        def offer(
            self, request: Any, outputs: tuple[Tensor, ...], request_id: str, authorization: str, watch: Any
        ) -> None:
            offered.append((request.inputs[0].array.tolist(), outputs[0].array.tolist(), request_id, authorization))

    with ServerThread(FunctionModel(row_signature(), echo)) as server:
        inference = RpcInference(server.repository, Collector())  # type: ignore[arg-type]
        data = with_input("FP32", fp32_contents=[1.0, 2.0]).SerializeToString()
        for metadata in ({"x-request-id": "a", "authorization": "Bearer t"}, {"x-slipway-shadow": "true"}):
            asyncio.run_coroutine_threadsafe(inference.infer(server.service, data, metadata, None), server.loop).result(
                20
            )
    assert offered == [([[1.0, 2.0]], [[1.0, 2.0]], "a", "Bearer t")]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_hosts_are_written_as_grpc_reads_them(host: str) -> None:
    found = grpc.server(ThreadPoolExecutor(1)).add_insecure_port(address_of(host, 0))
    assert found > 0
