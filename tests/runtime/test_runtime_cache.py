"""The answer cache of a server: hits, identical requests under way, and what ends them."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from slipway_runtime.settings import Limits

from tests.runtime.askers import CACHE, HEADER, MODEL, Crowd, ask, permitted, requests_of, row
from tests.runtime.harness import (
    INFER,
    PATIENCE,
    GatedModel,
    ServerThread,
    await_condition,
    fetch,
    json_request,
)
from tests.runtime.repository_server import RepositoryServer, model, write


def test_an_identical_request_is_answered_from_the_cache() -> None:
    with permitted(CACHE) as (model, server):
        status, first, headers = ask(server, 3)
        assert status == 200 and HEADER not in headers
        status, second, headers = ask(server, 3)
        assert (status, headers[HEADER]) == (200, "hit") and second == first
        assert HEADER not in ask(server, 4)[2]
        assert model.executions == [1, 1]
        metrics = server.metrics()
        assert requests_of(metrics, "slipway_cache_requests_total") == {"hit": 1, "miss": 2}
        assert metrics["slipway_cache_bytes"] > 0 and metrics["slipway_cache_evictions_total"] == 0
        (found,) = json.loads(fetch(server.address, "GET", "/v2/models/stats")[1])["model_stats"]
        looked = {name: found["inference_stats"][f"cache_{name}"] for name in ("hit", "miss")}
        assert (looked["hit"]["count"], looked["miss"]["count"]) == (1, 2) and looked["hit"]["ns"] > 0
        assert found["inference_count"] == 2
        assert metrics['slipway_requests_total{code="200",shadow="false"}'] == 3


def test_each_asker_gets_its_own_form_of_a_kept_answer() -> None:
    with permitted(CACHE) as (model, server):
        ask(server, 3)
        tensor = triton.InferInput("x", [1, 2], "FP32")
        tensor.set_data_from_numpy(np.full((1, 2), 3, np.float32))
        with triton.InferenceServerClient(server.grpc_address) as client:
            result = client.infer(MODEL, [tensor], request_id="seven")
            assert result.as_numpy("y").tolist() == [[6.0, 6.0]] and result.get_response().id == "seven"
            top = client.infer(MODEL, [tensor], outputs=[triton.InferRequestedOutput("y", class_count=1)])
            assert top.as_numpy("y").tolist() == [[b"6.000000:0"]]
        assert model.executions == [1]


@pytest.mark.parametrize("parameters", [{"sequence_id": 5}, {"sequence_start": True}, {"cache": False}])
def test_what_must_not_be_repeated_is_not(parameters: dict[str, Any]) -> None:
    with permitted(CACHE) as (model, server):
        for _ in range(3):
            assert HEADER not in ask(server, 3, **parameters)[2]
        assert model.executions == [1, 1, 1]
        assert requests_of(server.metrics(), "slipway_cache_requests_total") == {}


def test_repeated_requests_of_a_comparison_ask_the_model() -> None:
    with permitted(CACHE) as (model, server):
        for _ in range(2):
            assert HEADER not in ask(server, 3, {"x-slipway-shadow": "true"})[2]
        assert model.executions == [1, 1]


def test_failures_are_not_kept() -> None:
    with permitted(CACHE) as (_, server):
        assert [ask(server, 666)[0] for _ in range(2)] == [500, 500]
        assert ask(server, 1, {}, classification="a")[0] == 200
        assert len(server.served.cache) == 1
        assert server.service.unfinished == 0


def test_answers_grow_old() -> None:
    with permitted(Limits(cache_bytes=1_000_000, cache_ttl=0.05)) as (model, server):
        ask(server, 3)
        expires = time.monotonic() + 0.05
        await_condition(lambda: time.monotonic() > expires)
        assert HEADER not in ask(server, 3)[2]
        assert model.executions == [1, 1]
        assert server.metrics()["slipway_cache_evictions_total"] == 1


def test_identical_requests_under_way_are_one_execution() -> None:
    model = GatedModel()
    with ServerThread(model, CACHE) as server:
        crowd = Crowd(server)
        crowd.send(3, id="a")
        model.started.get(timeout=PATIENCE)
        for _ in range(7):
            crowd.send(3)
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 8)
        model.permit()
        assert {json.dumps(one.result(PATIENCE)[1]["outputs"]) for one in crowd.sent} == {
            json.dumps([{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [6.0, 6.0]}])
        }
        assert model.executions == [1]
        assert requests_of(server.metrics(), "slipway_cache_requests_total") == {"miss": 1, "shared": 7}
        assert server.service.unfinished == 0


def send_and_leave(server: ServerThread, body: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    connection.sendall(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (INFER.encode(), len(body)) + body)
    return connection


def test_the_first_of_several_may_leave() -> None:
    model = GatedModel()
    with ServerThread(model, CACHE) as server:
        blocker = Crowd(server)
        blocker.send(0)
        model.started.get(timeout=PATIENCE)
        first = send_and_leave(server, json_request(row(3)))
        blocker.await_waiting(1)
        second = blocker.send(3)
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 3)
        first.close()
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 2)
        model.permit()
        assert second.result(PATIENCE)[:1] == (200,)
        assert model.executions == [1, 1]


def test_when_all_leave_the_model_is_not_asked() -> None:
    model = GatedModel()
    with ServerThread(model, CACHE) as server:
        blocker = Crowd(server)
        blocker.send(0)
        model.started.get(timeout=PATIENCE)
        leaving = [send_and_leave(server, json_request(row(3, count=2))) for _ in range(3)]
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 4)
        for one in leaving:
            one.close()
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 1)
        model.permit()
        assert blocker.sent[0].result(PATIENCE)[0] == 200
        assert model.executions == [1]


def test_the_next_takes_the_place_of_one_that_ran_out_of_time() -> None:
    model = GatedModel()
    with ServerThread(model, CACHE) as server:
        crowd = Crowd(server)
        impatient = crowd.send(3, timeout=2_000_000)
        model.started.get(timeout=PATIENCE)
        patient = crowd.send(3)
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 2)
        assert impatient.result(PATIENCE)[0] == 504
        model.permit()
        assert patient.result(PATIENCE)[0] == 200
        assert server.service.unfinished == 0


def test_a_follower_has_a_deadline_of_its_own() -> None:
    model = GatedModel()
    with ServerThread(model, CACHE) as server:
        crowd = Crowd(server)
        patient = crowd.send(3)
        model.started.get(timeout=PATIENCE)
        assert crowd.send(3, timeout=50_000).result(PATIENCE)[0] == 504
        model.permit()
        assert patient.result(PATIENCE)[0] == 200


def test_the_followers_are_bounded_and_a_drain_answers_them() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(cache_bytes=1_000_000, max_queue=2)) as server:
        crowd = Crowd(server)
        crowd.send(0)
        model.started.get(timeout=PATIENCE)
        crowd.send(3)
        crowd.await_waiting(1)
        for _ in range(2):
            crowd.send(3)
        await_condition(lambda: server.on_loop(lambda: server.served.unfinished) == 4)
        assert ask(server, 3)[0] == 429
        server.on_loop(server.service.refuse_waiting)
        assert [one.result(PATIENCE)[0] for one in crowd.sent[1:]] == [503] * 3
        model.permit()
        assert crowd.sent[0].result(PATIENCE)[0] == 200


def test_a_swap_empties_the_cache(tmp_path: Path) -> None:
    old, new = write(tmp_path / "old", 2), write(tmp_path / "new", 3)
    with RepositoryServer(model(old), limits=Limits(max_delay=0, cache_bytes=1_000_000)) as server:

        def kept() -> float:
            metrics = fetch(server.address, "GET", "/metrics")[1].decode()
            return sum(
                float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("slipway_cache_bytes")
            )

        assert [server.infer(), server.infer()] == [2, 2] and kept() > 0
        assert server.load(uri=new.as_uri())[0] == 200
        assert kept() == 0
        assert server.infer() == 3 and kept() > 0
        # Back to the first, which is still there: it has forgotten its answers.
        assert server.load(uri=old.as_uri())[0] == 200
        assert kept() == 0 and server.infer() == 2
