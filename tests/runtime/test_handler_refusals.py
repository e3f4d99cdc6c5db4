"""Requests that a Python handler says are wrong: told to their clients, and counted as theirs."""

from __future__ import annotations

import json
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from slipway_runtime.handler import BadRequest
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.refusal import Refusal
from slipway_runtime.serving.batch import run_batch
from slipway_runtime.serving.warmup import read_goldens, warm_up
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor
from tritonclient.utils import InferenceServerException

from tests.runtime.counting import events
from tests.runtime.harness import PATIENCE, FunctionModel, await_condition, fetch, parse_metrics, row_signature
from tests.runtime.repository_server import RepositoryServer, model

HANDLER = """
from slipway_runtime.handler import BadRequest


class Ages:
    def preprocess(self, inputs):
        if (inputs["x"] < 0).any():
            raise BadRequest("an age is not negative")
        return inputs["x"]

    def predict(self, ages):
        if (ages > 900).any():
            raise BadRequest("nobody is that old", status=422)
        if (ages > 200).any():
            raise ValueError("a defect")
        return ages

    def postprocess(self, ages):
        return {"y": ages + 1}
"""
SPELLER = """
from slipway_runtime.handler import BadRequest


class Speller:
    def predict(self, inputs):
        for letter in inputs["text"].reshape(-1)[0].decode():
            if not letter.isalpha():
                raise BadRequest(f"no letter: {letter}")
            yield {"letter": [letter]}
"""
NUMBER, TEXT = "{name: x, datatype: FP32, shape: [-1]}", "{name: text, datatype: BYTES, shape: [-1]}"
BATCHED = Limits(max_batch_size=8, max_delay=36_000.0, timeout=36_000.0, adaptive=False)


def folder(place: Path, code: str, inputs: str, outputs: str, more: str = "") -> Path:
    place.mkdir()
    (place / "handler.py").write_text(code)
    (place / "config.yaml").write_text(f"handler: handler.py\ninputs: [{inputs}]\noutputs: [{outputs}]\n{more}")
    return place


def counted(server: RepositoryServer) -> dict[str, float]:
    """Requests by code."""
    metrics = parse_metrics(fetch(server.address, "GET", "/metrics")[1].decode())
    start = "slipway_requests_total{"
    return {name.split('"')[1]: value for name, value in metrics.items() if name.startswith(start) and value}


def served(code: str, inputs: str, outputs: str, place: Path) -> RepositoryServer:
    return RepositoryServer(model(folder(place / "m", code, inputs, outputs)), limits=BATCHED)


def ages(server: RepositoryServer, *values: float) -> tuple[int, Any]:
    tensor = {"name": "x", "shape": [len(values)], "datatype": "FP32", "data": values}
    return server.ask("POST", "/v2/models/m/infer", {"inputs": [tensor]})


def test_of_a_batch_only_the_wrong_ones_are_refused(tmp_path: Path) -> None:
    groups = ((30.0, 31.0), (-1.0,), (1000.0, 1.0), (40.0, 201.0))
    with served(HANDLER, NUMBER, NUMBER.replace("x", "y", 1), tmp_path) as server, ThreadPoolExecutor(4) as pool:
        service = server.repository.find("m")
        assert service.model is not None and service.model.signature.batched
        waiting = [pool.submit(ages, server, *values) for values in groups]
        await_condition(lambda: server.on_loop(lambda: service.unfinished) == len(groups))
        # The eighth row makes the batch complete.
        assert ages(server, 50.0)[1]["outputs"][0]["data"] == [51.0]
        good, negative, old, defect = [one.result(PATIENCE) for one in waiting]
        assert good[1]["outputs"][0]["data"] == [31.0, 32.0]
        assert negative == (400, {"error": "an age is not negative"})
        assert old == (422, {"error": "nobody is that old"})
        assert defect == (500, {"error": "the model failed on this request"})
        assert counted(server) == {"200": 2, "400": 1, "422": 1, "500": 1}
        # Over gRPC every one of them is an invalid argument; more rows than a batch has are refused as a whole.
        with triton.InferenceServerClient(server.grpc_address) as client:
            for values, words in (([-1.0] * 8, "not negative"), ([1.0] * 8 + [1000.0] * 8, "that old")):
                tensor = triton.InferInput("x", [len(values)], "FP32")
                tensor.set_data_from_numpy(np.array(values, np.float32))
                with pytest.raises(InferenceServerException, match=words) as refusal:
                    client.infer("m", [tensor])
                assert refusal.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert counted(server) == {"200": 2, "400": 2, "422": 2, "500": 1}


def test_an_answer_in_parts_may_end_with_a_refusal(tmp_path: Path) -> None:
    with served(SPELLER, TEXT, TEXT.replace("text", "letter", 1), tmp_path) as server:
        generate = "/v2/models/m/generate_stream"
        status, body, _ = fetch(server.address, "POST", generate, b'{"text": "1a"}')
        assert (status, json.loads(body)) == (400, {"error": "no letter: 1"})
        status, body, _ = fetch(server.address, "POST", generate, b'{"text": "a-"}')
        assert status == 200
        assert [one.get("letter", one.get("error")) for one in events(body)] == ["a", "no letter: -"]
        answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        with triton.InferenceServerClient(server.grpc_address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)))
            tensor = triton.InferInput("text", [1], "BYTES").set_data_from_numpy(np.array([b"!"], dtype=object))
            client.async_stream_infer("m", [tensor])
            assert "no letter: !" in str(answers.get(timeout=PATIENCE)[1])
            client.stop_stream()
        await_condition(lambda: counted(server) == {"400": 3})


@pytest.mark.parametrize("row_wise", ["", "batching: {rowWise: true}"])
def test_a_handler_that_refuses_made_up_requests_serves(tmp_path: Path, row_wise: str) -> None:
    code = HANDLER.replace("(ages > 900)", "(ages < 18)")
    place = folder(tmp_path / "m", code, NUMBER, NUMBER.replace("x", "y", 1), row_wise)
    with RepositoryServer(model(place)) as server:
        assert ages(server, 30.0)[1]["outputs"][0]["data"] == [31.0]
        assert ages(server, 3.0)[0] == 422
        served = server.repository.find("m").model
        assert served is not None and served.signature.batched == bool(row_wise)


def test_a_golden_that_is_refused_is_a_failure(tmp_path: Path) -> None:
    golden = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [-1.0]}]}
    (tmp_path / "goldens.json").write_text(json.dumps([{"request": golden}]))
    goldens = read_goldens(tmp_path / "goldens.json")

    def refusing(_: Sequence[Tensor]) -> tuple[Tensor, ...]:
        raise BadRequest("not that")

    with pytest.raises(Refusal, match="a warm-up request of 1 rows: not that"):
        warm_up(FunctionModel(row_signature(), refusing), 1, [1], 1, goldens)


@pytest.mark.parametrize(
    ("given", "status", "text"),
    [
        (BadRequest(), 400, "the model does not take this request"),
        (BadRequest("x" * 600), 400, "x" * 500 + "…"),
        (BadRequest("slowly", status=429), 429, "slowly"),
    ],
)
def test_what_the_client_is_told(given: BadRequest, status: int, text: str) -> None:
    def refusing(_: Sequence[Tensor]) -> tuple[Tensor, ...]:
        raise given

    inputs = (Tensor("x", Datatype.FP32, np.ones((1, 2), np.float32)),)
    [outcome] = run_batch(FunctionModel(row_signature(), refusing), [inputs], [1], 8)
    assert isinstance(outcome, RequestFailure)
    assert (outcome.status, outcome.text, outcome.retry_after) == (status, text, 1 if status == 429 else None)


@pytest.mark.parametrize("status", [0, 200, 399, 499, 500, 503])
def test_a_refusal_is_the_clients_error(status: int) -> None:
    with pytest.raises(ValueError, match=str(status)):
        BadRequest("no", status)
