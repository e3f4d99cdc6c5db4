"""Tenants, deadlines and the memory budget on a server: over HTTP and gRPC, in answers and in metrics."""

from __future__ import annotations

import gzip
import queue
import socket
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from slipway_runtime.serving.tenants import Share, TenantRules
from slipway_runtime.settings import Limits
from tritonclient.utils import InferenceServerException

from tests.runtime.askers import MODEL, Crowd, ask, permitted
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


# ---------------------------------------------------------------- deadlines


def test_what_cannot_finish_in_time_is_not_started() -> None:
    with permitted(Limits(max_delay=0)) as (model, server):

        def learn() -> None:
            for _ in range(20):
                server.batcher._cost.observe(1, 30.0)

        server.on_loop(learn)
        answers = [ask(server, 1, timeout=20_000_000)[0] for _ in range(8)]
        assert answers == [504] * 8 and model.executions == []
        # The estimate was too high: as nothing is run, it could not be corrected, so one is run.
        assert ask(server, 1, timeout=20_000_000)[0] == 200
        assert model.executions == [1]
        assert ask(server, 1)[0] == 200


def test_a_batch_has_no_more_rows_than_its_most_urgent_request_has_time_for() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=32, max_delay=0)) as server:

        def learn() -> None:
            for rows in (1, 2, 4, 8) * 20:
                server.batcher._cost.observe(rows, 4.0 * (1 + rows))

        crowd = Crowd(server)
        crowd.send(0)
        model.started.get(timeout=PATIENCE)
        crowd.send(1, timeout=22_000_000)
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
        for rows, words in ((100, "memory budget"), (1000, "larger than max")):
            with pytest.raises(InferenceServerException) as caught:
                client.infer(MODEL, sent(rows))
            assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
            assert words in caught.value.message()
        model.permit()
        assert answers.get(timeout=PATIENCE) is None
        assert server.on_loop(lambda: server.bounds.memory.held) == 0
