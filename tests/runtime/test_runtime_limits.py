"""Full queues, deadlines, clients that leave, servers that are not ready: each has its own answer and count."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest
from slipway_runtime.models.model import DeviceLost
from slipway_runtime.serving.service import Phase
from slipway_runtime.settings import Limits

from tests.runtime.harness import (
    INFER,
    PATIENCE,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    fetch,
    json_request,
    row_signature,
)
from tests.runtime.test_runtime_batching import Clients, data, row


def requests(server: ServerThread) -> dict[str, float]:
    """Served requests by code, live ones only, without zeros."""
    start = 'slipway_requests_total{code="'
    return {
        name.removeprefix(start)[:3]: value
        for name, value in server.metrics().items()
        if name.startswith(start) and 'shadow="false"' in name and value
    }


def occupied(server: ServerThread, model: GatedModel, clients: Clients) -> Any:
    """A request that is being executed."""
    first = clients.send(row(0))
    model.started.get(timeout=PATIENCE)
    return first


def test_a_full_queue_is_429_with_retry_after() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_queue=2, max_batch_size=1)) as server:
        clients = Clients(server)
        answers = [occupied(server, model, clients)]
        for number in (1, 2):
            answers.append(clients.send(row(number)))
            clients.await_waiting(number)
        status, body, headers = fetch(server.address, "POST", INFER, json_request(row(3)))
        assert (status, headers["retry-after"]) == (429, "1") and b"queue" in body
        assert server.metrics()["slipway_queue_depth"] == 2
        assert server.metrics()["slipway_requests_in_flight"] == 3
        model.permit()
        for answer in answers:
            data(answer)
        assert requests(server) == {"200": 3, "429": 1}


def test_max_concurrency_counts_running_requests() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_concurrency=1)) as server:
        clients = Clients(server)
        first = occupied(server, model, clients)
        assert server.infer(row(1))[0] == 429
        model.permit()
        data(first)
        assert server.infer(row(1))[0] == 200


def test_a_deadline_covers_waiting_and_running() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(timeout=PATIENCE)) as server:
        clients = Clients(server)
        running = clients.send(row(0), timeout=1_500_000)
        model.started.get(timeout=PATIENCE)
        assert server.infer(row(1), timeout=50_000)[0] == 504
        assert running.result(PATIENCE)[0] == 504
        assert model.executions == []
        model.permit()
        assert server.infer(row(2))[0] == 200
        # The one that expired in the queue never ran.
        assert model.executions == [1, 1]
        assert requests(server) == {"200": 1, "504": 2}
        assert server.service.unfinished == 0


def test_the_servers_timeout_is_the_upper_bound() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(timeout=0.1)) as server:
        assert server.infer(row(1), timeout=10**9)[0] == 504
        model.permit()


@pytest.mark.parametrize("waiting", [True, False])
def test_a_client_that_leaves_is_noticed(waiting: bool) -> None:
    model = GatedModel()
    with ServerThread(model) as server:
        clients = Clients(server)
        first = occupied(server, model, clients) if waiting else None
        host, _, port = server.address.partition(":")
        with socket.create_connection((host, int(port))) as leaving:
            body = json_request(row(5))
            leaving.sendall(f"POST {INFER} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            if waiting:
                clients.await_waiting(1)
            else:
                model.started.get(timeout=PATIENCE)
        await_condition(lambda: requests(server).get("499") == 1)
        assert server.on_loop(lambda: len(server.batcher._line)) == 0
        model.permit()
        if first is not None:
            data(first)
        assert server.infer(row(1))[0] == 200
        # What had been queued never ran; what was running ended without anybody.
        assert model.executions == [1, 1]
        await_condition(lambda: server.metrics()["slipway_requests_in_flight"] == 0)
        metrics = server.metrics()
        assert metrics['slipway_request_duration_seconds_count{shadow="false"}'] == sum(requests(server).values())


def test_health_answers_while_a_model_runs() -> None:
    model = GatedModel()
    with ServerThread(model) as server:
        first = occupied(server, model, Clients(server))
        for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
            assert fetch(server.address, "GET", path)[0] == 200
        busy = [server.metrics()["slipway_executor_busy_seconds_total"] for _ in range(3)]
        assert 0 < busy[0] <= busy[1] <= busy[2]
        model.permit()
        data(first)


def test_before_ready_and_while_closing() -> None:
    model = GatedModel()
    model.permit()
    with ServerThread(model, start=False) as server:
        assert fetch(server.address, "GET", "/v2/health/live")[0] == 200
        assert fetch(server.address, "GET", "/v2/health/ready")[:2] == (400, b"")
        assert fetch(server.address, "GET", "/v2/models/my%20model/ready")[0] == 400
        status, _, headers = fetch(server.address, "POST", INFER, json_request(row(1)))
        assert (status, headers["retry-after"]) == (503, "1")
        assert fetch(server.address, "GET", "/v2/models/my%20model")[0] == 503
        assert server.metrics()["slipway_model_ready"] == 0
        server.on_loop(server.start_model)
        assert fetch(server.address, "GET", "/v2/health/ready")[0] == 200
        assert server.metrics()["slipway_model_ready"] == 1
        server.enter(Phase.DRAINING)
        assert fetch(server.address, "GET", "/v2/health/ready")[0] == 400
        assert server.infer(row(1))[0] == 200
        server.enter(Phase.CLOSING)
        assert server.infer(row(1))[0] == 503
        assert requests(server) == {"200": 1, "503": 2}


def test_shadow_requests_are_counted_apart() -> None:
    model = GatedModel()
    model.permit()
    with ServerThread(model) as server:
        for _ in range(3):
            fetch(server.address, "POST", INFER, json_request(row(1)), {"X-Slipway-Shadow": "true"})
        assert server.infer(row(1))[0] == 200
        metrics = server.metrics()
        assert metrics['slipway_requests_total{code="200",shadow="true"}'] == 3
        assert metrics['slipway_requests_total{code="200",shadow="false"}'] == 1
        assert metrics['slipway_request_duration_seconds_count{shadow="true"}'] == 3


def test_metrics_are_exact_and_health_is_not_counted() -> None:
    model = GatedModel()
    model.permit()
    with ServerThread(model) as server:
        for _ in range(7):
            fetch(server.address, "GET", "/v2/health/ready")
            assert server.infer(row(1))[0] == 200
        for _ in range(3):
            assert server.infer([[[1.0]]])[0] == 400
        assert server.infer(row(666))[0] == 500
        assert fetch(server.address, "POST", "/v2/models/other/infer", b"{}")[0] == 404
        assert requests(server) == {"200": 7, "400": 3, "500": 1}
        metrics = server.metrics()
        assert metrics['slipway_request_duration_seconds_count{shadow="false"}'] == 11
        assert metrics["slipway_batch_size_count"] == metrics["slipway_queue_duration_seconds_count"] == 8


def test_usual_series_exist_from_the_start() -> None:
    with ServerThread(GatedModel()) as server:
        metrics = server.metrics()
        for code in (200, 400, 429, 500, 503, 504):
            assert metrics[f'slipway_requests_total{{code="{code}",shadow="false"}}'] == 0
        text = fetch(server.address, "GET", "/metrics")[1].decode()
        assert 'model="my model",version="v1",revision="rev-1"' in text
        assert 'le="0.001"' in text and 'le="60"' in text and 'le="+Inf"' in text


def test_a_lost_device_ends_readiness() -> None:
    def broken(_: Any) -> Any:
        raise DeviceLost("CUDA error: device-side assert triggered")

    with ServerThread(FunctionModel(row_signature(), broken)) as server:
        assert server.infer(row(1))[0] == 500
        assert len(server.lost) == 1


def test_tracked_requests_do_not_leak() -> None:
    model = GatedModel()
    model.permit(10_000)
    with ServerThread(model) as server:
        for width in range(1, 200):
            assert server.infer(np.zeros((1, width)))[0] == 200
        line = server.batcher._line
        assert (not line._groups and not line._arrivals) or server.on_loop(line.oldest) is None
        assert not line._groups and len(line) == 0
