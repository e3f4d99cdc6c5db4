"""The comparison's own arithmetic: requests as bytes, medians, goals."""

from __future__ import annotations

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from e2e.bench.runtime import messages
from e2e.bench.runtime.peers import PEERS
from e2e.bench.runtime.report import Results, goals, tables
from e2e.bench.runtime.served.models import MODELS
from e2e.bench.runtime.workloads import WORKLOADS, Wire, Workload, groups


def results(**rates: float) -> Results:
    found = Results()
    for peer, rate in rates.items():
        for factor in (0.5, 1.0, 9.0):
            sample = {"rate": rate * factor, "p50": 1e-4, "p99": 2e-4, "cpu": 1e-5}
            found.add("identity-16", peer.replace("_", "-"), sample)
    return found


def test_goals_compare_medians() -> None:
    found = {
        goal: (measured, met)
        for goal, measured, met in goals(
            results(bare=50_000, slipway=30_000, slipway_threaded=19_000, triton=9_000, triton_batching=16_000, ray=100)
        )
    }
    assert found["20,000 no-op requests a second, model on its thread"] == ("19,000", False)
    assert found["identity-16: twice Triton's Python backend"] == ("1.9x", False)
    assert found["identity-16: 20 times the best in Python (Ray Serve)"] == ("300.0x", True)
    assert found["identity-16: within twice of bare asyncio"] == ("bare is 1.67x", True)


def test_a_server_that_cannot_is_in_the_table_with_its_reason() -> None:
    found = results(slipway=30_000)
    found.note("identity-16", "litserve", "has no such thing")
    found.fail("identity-16", "ray", "did not start")
    table = tables(found)
    assert "| Slipway | 30,000 |" in table
    assert "| LitServe | cannot (has no such thing) |" in table
    assert "| Ray Serve | cannot (did not start) |" in table
    found.add("identity-16", "ray", {"rate": 1.0, "p50": 1.0, "p99": 1.0, "cpu": 1.0})
    assert found.failures == {}


@pytest.mark.parametrize("wire", Wire)
def test_requests_and_answers_in_every_format(wire: Wire) -> None:
    served = MODELS["perceptron"]
    inputs = {"x": np.arange(16, dtype=np.float32).reshape(1, 16)}
    if wire is Wire.GRPC:
        request = service_pb2.ModelInferRequest.FromString(messages.protocol_grpc(served, inputs))
        assert request.raw_input_contents[0] == inputs["x"].tobytes()
        answer = service_pb2.ModelInferResponse(model_name="m")
        answer.outputs.add(name="y", datatype="FP32", shape=[1, 16])
        answer.raw_output_contents.append(inputs["x"].tobytes())
        read = messages.read_grpc(served, answer.SerializeToString())
    else:
        make = messages.protocol_json if wire is Wire.JSON else messages.protocol_binary
        headers, body = make(served, inputs)
        # The request as an answer: its inputs are the outputs, which is a word longer by a letter.
        length = headers.get("Inference-Header-Content-Length")
        known = {} if length is None else {"inference-header-content-length": str(int(length) + 1)}
        answered = body.replace(b'"inputs"', b'"outputs"', 1).replace(b'"name":"x"', b'"name":"y"')
        read = messages.read_http(known, answered)
    assert np.array_equal(read["y"], inputs["x"])


def test_every_workload_is_in_one_group_and_every_server_has_a_word_on_it() -> None:
    grouped: list[Workload] = [one for group in groups().values() for one in group]
    assert sorted(one.name for one in grouped) == sorted(one.name for one in WORKLOADS)
    for peer in PEERS:
        assert any(not peer.refusal(one) for one in WORKLOADS)
