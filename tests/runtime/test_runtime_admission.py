"""Tenants, the answer cache and the memory budget on a server: over HTTP and gRPC, in answers and in metrics."""

from __future__ import annotations

import contextlib
import gzip
import json
import queue
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from slipway_runtime.serving.tenants import Share, TenantRules
from slipway_runtime.settings import Limits
from tritonclient.utils import InferenceServerException

from tests.runtime.harness import (
    INFER,
    PATIENCE,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    echo,
    fetch,
    json_request,
    row_signature,
)
from tests.runtime.repository_server import RepositoryServer, model, write

MODEL = "my model"
CACHE = Limits(cache_bytes=1_000_000)
HEADER = "x-slipway-cache"


def row(value: float, count: int = 1) -> list[list[float]]:
    return [[value] * 2] * count


def ask(server: ServerThread, value: float, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
    status, data, answered = fetch(server.address, "POST", INFER, json_request(row(value), **parameters), headers)
    return status, json.loads(data), answered


def requests_of(metrics: dict[str, float], name: str) -> dict[str, float]:
    """The series of a counter by the value of their last label, without those at zero."""
    return {
        series.rpartition("=")[2].strip('"}'): value
        for series, value in metrics.items()
        if series.startswith(f"{name}{{") and value
    }


@contextlib.contextmanager
def permitted(limits: Limits, **more: Any) -> Iterator[tuple[GatedModel, ServerThread]]:
    model = GatedModel()
    model.permit()
    with ServerThread(model, limits, **more) as server:
        yield model, server


# ---------------------------------------------------------------- tenants


def test_a_tenant_beyond_its_rate_gets_429_and_others_do_not() -> None:
    rules = TenantRules("x-tenant", default=Share(0.1, 1), named={"gold": Share(0, 10)})
    with permitted(Limits(), tenants=rules) as (_, server):
        assert ask(server, 1, {"X-Tenant": "iron"})[0] == 200
        status, document, headers = ask(server, 1, {"X-Tenant": "iron"})
        assert status == 429 and "rate" in document["error"] and 9 <= int(headers["retry-after"]) <= 10
        assert [ask(server, 1, {"X-Tenant": "gold"})[0] for _ in range(5)] == [200] * 5
        for number in range(50):
            ask(server, 1, {"X-Tenant": f"made-up-{number}"})
        metrics = server.metrics()
        tenants = [name for name in metrics if name.startswith("slipway_tenant_requests_total")]
        assert len(tenants) == 4
        assert metrics['slipway_tenant_requests_total{tenant="gold",result="admitted"}'] == 5
        assert metrics['slipway_tenant_requests_total{tenant="default",result="limited"}'] == 1
        assert metrics['slipway_requests_total{code="429",shadow="false"}'] == 1


def test_grpc_metadata_name_the_tenant() -> None:
    rules = TenantRules("x-tenant", default=Share(0.1, 1))
    tensor = triton.InferInput("x", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 2), np.float32))
    with (
        permitted(Limits(), tenants=rules) as (_, server),
        triton.InferenceServerClient(server.grpc_address) as client,
    ):
        for name in ("a", "b"):
            client.infer(MODEL, [tensor], headers={"x-tenant": name})
        with pytest.raises(InferenceServerException) as caught:
            client.infer(MODEL, [tensor], headers={"x-tenant": "a"})
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"


def test_a_claim_that_cannot_be_read_is_401() -> None:
    rules = TenantRules("x-claims", "org", Share(0, 1))
    with permitted(Limits(), tenants=rules) as (_, server):
        assert ask(server, 1, {"x-claims": "not base64!"})[0] == 401
        assert ask(server, 1)[0] == 200


class Crowd:
    """Requests that wait for the model, each sent when the one before it waits."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(16)
        self.sent: list[Future[Any]] = []

    def send(self, value: float, headers: dict[str, str] | None = None, **parameters: Any) -> Future[Any]:
        self.sent.append(self._pool.submit(ask, self._server, value, headers, **parameters))
        return self.sent[-1]

    def await_waiting(self, count: int) -> None:
        await_condition(lambda: self._server.on_loop(lambda: self._server.batcher.waiting) == count)


def test_important_tenants_go_first_and_within_one_the_priority_counts() -> None:
    rules = TenantRules("x-tenant", default=Share(0, 1), named={"gold": Share(0, 10)})
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=1, max_delay=0), tenants=rules) as server:
        crowd = Crowd(server)
        crowd.send(0)
        model.started.get(timeout=PATIENCE)
        order: queue.Queue[str] = queue.Queue()

        def note(name: str, _: Future[Any]) -> None:
            order.put(name)

        senders = (("iron", 0), ("iron", 1), ("gold", 0), ("gold", 2))
        for waiting, (tenant, priority) in enumerate(senders, start=1):
            answer = crowd.send(waiting, {"x-tenant": tenant}, priority=priority)
            answer.add_done_callback(partial(note, f"{tenant}-{priority}"))
            crowd.await_waiting(waiting)
        for want in ("gold-2", "gold-0", "iron-1", "iron-0"):
            model.permit(1)
            if want == "gold-2":
                assert crowd.sent[0].result(PATIENCE)[0] == 200
                model.permit(1)
            assert order.get(timeout=PATIENCE) == want


# ---------------------------------------------------------------- answer cache


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
        impatient = crowd.send(3, timeout=200_000)
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


# ---------------------------------------------------------------- deadlines


def test_what_cannot_finish_in_time_is_not_started() -> None:
    with permitted(Limits(max_delay=0)) as (model, server):

        def learn() -> None:
            for _ in range(20):
                server.batcher._cost.observe(1, 10.0)

        server.on_loop(learn)
        answers = [ask(server, 1, timeout=1_000_000)[0] for _ in range(8)]
        assert answers == [504] * 8 and model.executions == []
        # The estimate was too high: as nothing is run, it could not be corrected, so one is run.
        assert ask(server, 1, timeout=1_000_000)[0] == 200
        assert model.executions == [1]
        assert ask(server, 1)[0] == 200


def test_a_batch_has_no_more_rows_than_its_most_urgent_request_has_time_for() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=32, max_delay=0)) as server:

        def learn() -> None:
            for rows in (1, 2, 4, 8) * 20:
                server.batcher._cost.observe(rows, 1.0 + rows)

        crowd = Crowd(server)
        crowd.send(0)
        model.started.get(timeout=PATIENCE)
        crowd.send(1, timeout=5_500_000)
        crowd.await_waiting(1)
        for waiting in range(2, 10):
            crowd.send(waiting)
            crowd.await_waiting(waiting)
        server.on_loop(learn)
        model.permit()
        assert [one.result(PATIENCE)[0] for one in crowd.sent] == [200] * 10
        assert model.executions[0] == 1 and 1 <= model.executions[1] <= 4


# ---------------------------------------------------------------- memory budget


def test_bodies_in_flight_are_bounded() -> None:
    body = json_request(np.zeros((1, 2)))
    model = GatedModel()
    with ServerThread(model, Limits(max_inflight_bytes=len(body) * 2)) as server:
        crowd = Crowd(server)
        for value in (0, 0):
            crowd.send(value)
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 2 * len(body))
        status, data, headers = fetch(server.address, "POST", INFER, body)
        assert (status, headers["retry-after"]) == (429, "1") and b"memory" in data
        status, data, headers = fetch(server.address, "POST", INFER, body * 3)
        assert status == 413 and "retry-after" not in headers
        assert fetch(server.address, "GET", "/v2/health/ready")[0] == 200
        model.permit()
        assert [one.result(PATIENCE)[0] for one in crowd.sent] == [200, 200]
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 0)
        metrics = server.metrics()
        assert metrics['slipway_requests_total{code="429",shadow="false"}'] == 1
        assert metrics['slipway_requests_total{code="413",shadow="false"}'] == 1


def test_what_comes_in_chunks_or_inflates_is_counted_too() -> None:
    with ServerThread(FunctionModel(row_signature(), echo), Limits(max_inflight_bytes=20_000)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
            connection.sendall(b"POST %s HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" % INFER.encode())
            for _ in range(5):
                connection.sendall(b"1388\r\n" + b" " * 5000 + b"\r\n")
            assert b"413" in connection.recv(4096)
        packed = gzip.compress(json_request(np.zeros((1, 10_000))))
        assert len(packed) < 2_000
        status, data, _ = fetch(server.address, "POST", INFER, packed, {"Content-Encoding": "gzip"})
        assert status == 413 and b"at once" in data
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 0)


def test_clients_that_leave_give_their_memory_back() -> None:
    with ServerThread(GatedModel(), Limits(max_inflight_bytes=10_000)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as half:
            half.sendall(b"POST %s HTTP/1.1\r\nContent-Length: 9000\r\n\r\n{" % INFER.encode())
            await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 9000)
        await_condition(lambda: server.on_loop(lambda: server.bounds.memory.held) == 0)


def test_grpc_messages_are_counted() -> None:
    model = GatedModel()
    with (
        ServerThread(model, Limits(max_inflight_bytes=600)) as server,
        triton.InferenceServerClient(server.grpc_address) as client,
    ):

        def sent(rows: int) -> list[triton.InferInput]:
            tensor = triton.InferInput("x", [rows, 1], "FP32")
            tensor.set_data_from_numpy(np.zeros((rows, 1), np.float32))
            return [tensor]

        answers: queue.Queue[Any] = queue.Queue()
        client.async_infer(MODEL, sent(100), lambda result, error: answers.put(error))
        model.started.get(timeout=PATIENCE)
        assert server.on_loop(lambda: server.bounds.memory.held) > 400
        for rows, words in ((100, "memory budget"), (1000, "all requests at once")):
            with pytest.raises(InferenceServerException) as caught:
                client.infer(MODEL, sent(rows))
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
            assert words in caught.value.message()
        model.permit()
        assert answers.get(timeout=PATIENCE) is None
        assert server.on_loop(lambda: server.bounds.memory.held) == 0
