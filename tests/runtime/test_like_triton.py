"""What clients of Triton rely on, beside the recorded conversation: paths, parameters, configurations, statistics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
from google.protobuf.json_format import MessageToDict
from slipway_runtime.tensors.datatypes import Datatype
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from tests.runtime.askers import MODEL
from tests.runtime.harness import INFER, ServerThread, echo_model, fetch, json_request
from tests.runtime.repository_server import Flat, RepositoryServer, model, write

PATH = "/v2/models/my%20model"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread(echo_model(Datatype.FP32)) as started:
        yield started


@pytest.mark.parametrize(
    "path",
    [
        f"{PATH}/infer/", f"/{PATH}/infer", "/v2//models/my%20model/infer", f"{PATH}/versions//infer",
        f"{PATH}/%69nfer", "/%76%32/models/my%20model/infer", "/v2/models//infer",
        f"{PATH}/./infer",
        f"{PATH}/../my%20model/infer", "/v2%2Fmodels/my%20model/infer",
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_a_path(server: ServerThread, path: str) -> None:
    """A proxy's rule for a path is not to be got round."""
    status, answer, _ = fetch(server.address, "POST", path, json_request([[1.0]]))
    assert status == 404 and "error" in json.loads(answer)


def test_names_may_be_quoted_and_queries_are_nothing(server: ServerThread) -> None:
    assert fetch(server.address, "POST", f"{INFER}?a=b", json_request([[1.0]]))[0] == 200
    assert fetch(server.address, "GET", "/v2/models/m%79%20model/ready")[0] == 200


@pytest.mark.parametrize("path", ["/v2/logging", "/v2/repository/index", "/v2/trace/setting"])
def test_settings_are_short(server: ServerThread, path: str) -> None:
    status, answer, _ = fetch(server.address, "POST", path, b'{"a": [' + b"[]," * 500_000 + b"0]}")
    assert status == 413 and "bytes" in json.loads(answer)["error"]


@pytest.mark.parametrize("name", ["a", "triton_a", "triton_enable_empty_final_response"])
@pytest.mark.parametrize("value", [[1], {"b": 1}, None, 1, 1.5, "b", True])
def test_parameters_are_texts_numbers_and_bools_without_reserved_names(
    server: ServerThread, name: str, value: Any
) -> None:
    status, answer, _ = fetch(server.address, "POST", INFER, json_request([[1.0]], **{name: value}))
    if name == "a" and isinstance(value, str | int | float):
        assert status == 200
    else:
        assert status == 400 and f"'{name}'" in json.loads(answer)["error"]


def test_parameters_over_grpc(server: ServerThread) -> None:
    tensor = triton_grpc.InferInput("x", [1, 1], "FP32").set_data_from_numpy(np.ones((1, 1), np.float32))
    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        client.infer(MODEL, [tensor], parameters={"a": 1, "b": "c", "d": True, "e": 1.5})
        for name, value in (
            ("triton_a", service_pb2.InferParameter(bool_param=True)),
            ("a", service_pb2.InferParameter()),
        ):
            message = service_pb2.ModelInferRequest(model_name=MODEL, parameters={name: value})
            message.inputs.add(name="x", datatype="FP32", shape=[1, 1])
            message.raw_input_contents.append(b"\0" * 4)
            with pytest.raises(grpc.RpcError, match=f"'{name}'"):
                client._client_stub.ModelInfer(message)


def test_the_server_says_what_it_offers(server: ServerThread) -> None:
    with (
        triton.InferenceServerClient(server.address) as client,
        triton_grpc.InferenceServerClient(server.grpc_address) as grpc_client,
    ):
        told = client.get_server_metadata()["extensions"]
        assert list(grpc_client.get_server_metadata().extensions) == told
    assert {"binary_tensor_data", "generate", "logging", "model_repository", "statistics", "trace"} <= {*told}
    assert not {one for one in told if "shared_memory" in one or one == "sequence"}


@pytest.mark.parametrize(
    ("platform", "backend"),
    [("python", "python"), ("onnxruntime_onnx", "onnxruntime"), ("pytorch_export", "pytorch"), ("test", "pytorch")],
)
def test_a_configuration_names_the_backend(platform: str, backend: str) -> None:
    served = echo_model(Datatype.FP32)
    served.platform = platform
    with ServerThread(served) as server:
        found = json.loads(fetch(server.address, "GET", f"{PATH}/config")[1])
    assert (found["platform"], found["backend"]) == (platform, backend)


def test_averages_of_statistics_can_be_formed() -> None:
    with ServerThread(echo_model(Datatype.FP32, batched=True)) as server:
        for rows in (1, 2, 2):
            assert server.infer([[1.0]] * rows)[0] == 200
        [found] = json.loads(fetch(server.address, "GET", f"{PATH}/stats")[1])["model_stats"]
        assert found["inference_count"] == 5 and found["execution_count"] == 3
        parts = ("compute_input", "compute_infer", "compute_output")
        assert [found["inference_stats"][part]["count"] for part in parts] == [3, 3, 3]
        batches = {one["batch_size"]: [one[part]["count"] for part in parts] for one in found["batch_stats"]}
        assert batches == {1: [1, 1, 1], 2: [2, 2, 2]}


@pytest.mark.parametrize("batched", [True, False])
def test_a_configuration_that_was_read_may_be_sent_back_changed(tmp_path: Path, batched: bool) -> None:
    config = "" if batched else "batching: {rowWise: false}\n"
    place = write(tmp_path / "a", 2, config=config)
    with RepositoryServer(model(place)) as server:
        with triton.InferenceServerClient(server.address) as client:
            read = client.get_model_config("m")
            client.load_model("m", config=json.dumps({**read, "max_batch_size": 4 if batched else 0}))
            assert client.get_model_config("m")["max_batch_size"] == (4 if batched else 0)
            other = {**read, "input": [{**read["input"][0], "dims": [5]}]}
            with pytest.raises(InferenceServerException, match="'input' cannot be overridden"):
                client.load_model("m", config=json.dumps(other))
            with pytest.raises(InferenceServerException, match="'parameters' cannot be overridden"):
                client.load_model("m", config=json.dumps({**read, "parameters": {}}))
        with triton_grpc.InferenceServerClient(server.grpc_address) as grpc_client:
            known = grpc_client.get_model_config("m").config
            text = json.dumps(MessageToDict(known, preserving_proto_field_name=True))
            grpc_client.load_model("m", config=text)
            as_json = grpc_client.get_model_config("m", as_json=True)["config"]
            grpc_client.load_model("m", config=json.dumps(as_json))
        assert server.infer() == 2
        assert server.load(uri=write(tmp_path / "b", module=Flat()).as_uri())[0] == 400
