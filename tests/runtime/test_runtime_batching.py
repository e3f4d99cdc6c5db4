"""Batches: rows, order, isolation, waiting."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway_runtime.models.model import OutOfMemory
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.serving.batch import run_batch
from slipway_runtime.serving.cost import CostModel
from slipway_runtime.serving.executor import Executor
from slipway_runtime.settings import Limits
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

from tests.runtime.harness import (
    PATIENCE,
    FunctionModel,
    GatedModel,
    ServerThread,
    await_condition,
    echo,
    row_signature,
)


def times_two(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    array = inputs[0].array
    if (array == 666).any():
        raise ValueError("row 666")
    return (Tensor("y", Datatype.FP32, array * 2),)


MODEL = FunctionModel(row_signature(), times_two)


def rows_of(value: float, count: int) -> tuple[Tensor, ...]:
    return (Tensor("x", Datatype.FP32, np.full((count, 2), value, dtype=np.float32)),)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=8), st.integers(1, 4))
def test_each_request_gets_its_own_rows_back(requests: list[tuple[int, int]], max_rows: int) -> None:
    inputs = [rows_of(value, count) for value, count in requests]
    outcomes = run_batch(MODEL, inputs, [count for _, count in requests], max_rows)
    for (value, count), outcome in zip(requests, outcomes, strict=True):
        assert isinstance(outcome, tuple)
        assert outcome[0].array.tolist() == [[value * 2.0] * 2] * count


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_only_the_guilty_request_fails(guilty: list[bool]) -> None:
    inputs = [rows_of(666 if bad else 3, 1) for bad in guilty]
    outcomes = run_batch(MODEL, inputs, [1] * len(guilty), 32)
    for bad, outcome in zip(guilty, outcomes, strict=True):
        if bad:
            assert isinstance(outcome, RequestFailure) and outcome.status == 500
            assert "666" not in outcome.text
        else:
            assert isinstance(outcome, tuple) and outcome[0].array.tolist() == [[6.0, 6.0]]


def test_a_wrong_number_of_rows_is_a_failure_of_the_model() -> None:
    short = FunctionModel(row_signature(), lambda inputs: (Tensor("y", Datatype.FP32, inputs[0].array[:1]),))
    outcomes = run_batch(short, [rows_of(1, 2), rows_of(1, 1)], [2, 1], 32)
    assert isinstance(outcomes[0], RequestFailure) and outcomes[0].status == 500
    assert isinstance(outcomes[1], tuple)


def test_out_of_memory_splits_the_batch_first() -> None:
    def small_device(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if len(inputs[0].array) > 2 or (inputs[0].array == 5).any():
            raise OutOfMemory
        return times_two(inputs)

    model = FunctionModel(row_signature(), small_device)
    outcomes = run_batch(model, [rows_of(1, 2), rows_of(1, 2), rows_of(1, 3), rows_of(5, 1)], [2, 2, 3, 1], 32)
    assert [isinstance(one, tuple) for one in outcomes] == [True, True, True, False]
    assert isinstance(outcomes[3], RequestFailure) and outcomes[3].status == 503


class Clients:
    """Requests sent from threads, so that many wait at once."""

    def __init__(self, server: ServerThread) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(32)

    def send(self, array: Any, **parameters: Any) -> Future[tuple[int, Any]]:
        return self._pool.submit(self._server.infer, array, **parameters)

    def await_waiting(self, count: int) -> None:
        await_condition(lambda: self._server.on_loop(lambda: len(self._server.batcher._line)) == count)


def row(value: float, count: int = 1, width: int = 2) -> list[list[float]]:
    return [[value] * width] * count


def data(answer: Future[tuple[int, Any]]) -> list[float]:
    status, document = answer.result(PATIENCE)
    assert status == 200, document
    values: list[float] = document["outputs"][0]["data"]
    return values


def test_what_waits_runs_together_and_never_more_rows_than_allowed() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=4)) as server:
        clients = Clients(server)
        first = clients.send(row(0))
        assert model.started.get(timeout=PATIENCE) == 1
        others = []
        for number in range(1, 6):
            others.append(clients.send(row(number)))
            clients.await_waiting(number)
        large = clients.send(row(9, count=10))
        clients.await_waiting(6)
        model.permit()
        assert data(first) == [0.0, 0.0]
        assert [data(one) for one in others] == [[number * 2.0] * 2 for number in range(1, 6)]
        assert data(large) == [18.0] * 20
        # One alone, four that waited, the fifth; ten rows in chunks of at most four.
        assert model.executions == [1, 4, 1, 4, 4, 2]
        metrics = server.metrics()
        assert metrics["slipway_request_rows_total"] == 16
        assert metrics["slipway_batch_size_count"] == 4


def test_different_shapes_are_never_mixed() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=8)) as server:
        clients = Clients(server)
        first = clients.send(row(0))
        model.started.get(timeout=PATIENCE)
        answers = []
        for number, width in enumerate((2, 3, 2, 3), start=1):
            answers.append((width, clients.send(row(number, width=width))))
            clients.await_waiting(number)
        model.permit()
        data(first)
        for number, (width, answer) in enumerate(answers, start=1):
            assert data(answer) == [number * 2.0] * width
        assert model.executions == [1, 2, 2]


def test_a_bad_row_fails_alone_on_the_server() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_batch_size=8)) as server:
        clients = Clients(server)
        first = clients.send(row(0))
        model.started.get(timeout=PATIENCE)
        answers = []
        for number, value in enumerate((1, 666, 2), start=1):
            answers.append(clients.send(row(value)))
            clients.await_waiting(number)
        model.permit()
        data(first)
        good, bad, other = answers
        assert data(good) == [2.0, 2.0] and data(other) == [4.0, 4.0]
        status, document = bad.result(PATIENCE)
        assert status == 500 and "666" not in document["error"]


def test_a_lone_request_on_an_idle_server_does_not_wait() -> None:
    model = GatedModel()
    model.permit()
    with ServerThread(model, Limits(max_delay=PATIENCE)) as server:
        for _ in range(3):
            assert server.infer(row(1))[0] == 200


def test_without_adaptation_even_a_lone_request_waits_for_company() -> None:
    limits = Limits(max_delay=0.3, adaptive=False)
    with ServerThread(FunctionModel(row_signature(), echo), limits) as server:
        begun = time.monotonic()
        assert server.infer([[1.0]])[0] == 200
        assert time.monotonic() - begun >= 0.3


def test_after_a_batch_the_next_waits_for_as_many_but_not_longer_than_the_delay() -> None:
    model = GatedModel()
    with ServerThread(model, Limits(max_delay=3.0)) as server:
        clients = Clients(server)
        first = clients.send(row(0))
        model.started.get(timeout=PATIENCE)
        pair = [clients.send(row(1)), clients.send(row(2))]
        clients.await_waiting(2)
        model.permit()
        assert [len(data(one)) for one in (first, *pair)] == [2, 2, 2]
        assert model.executions == [1, 2]
        # Two again, sent apart: the first waits for the second.
        again = clients.send(row(3))
        clients.await_waiting(1)
        assert data(clients.send(row(4))) == [8.0, 8.0] and data(again) == [6.0, 6.0]
        assert model.executions == [1, 2, 2]
        # One alone goes when the delay has passed, and the next one alone goes at once.
        assert server.infer(row(5))[0] == server.infer(row(6))[0] == 200
        assert model.executions == [1, 2, 2, 1, 1]
        queue_time = server.metrics()
        assert (
            queue_time['slipway_queue_duration_seconds_bucket{le="2"}']
            < queue_time["slipway_queue_duration_seconds_count"]
        )


def test_many_clients_with_random_rows_get_exactly_their_rows() -> None:
    model = GatedModel()
    model.permit(100_000)
    random = np.random.default_rng(1)
    with ServerThread(model, Limits(max_batch_size=8)) as server:
        clients = Clients(server)
        arrays = [random.integers(0, 600, (random.integers(1, 12), 3)).astype(np.float32) for _ in range(200)]
        answers = [clients.send(array) for array in arrays]
        for array, answer in zip(arrays, answers, strict=True):
            assert data(answer) == (array * 2).reshape(-1).tolist()
        assert server.metrics()["slipway_request_rows_total"] == sum(len(one) for one in arrays)
        assert max(model.executions) <= 8
        assert server.service.unfinished == 0


def test_short_models_run_on_the_loop_and_long_ones_in_the_thread() -> None:
    names: queue.Queue[str] = queue.Queue()

    def noting(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        names.put(threading.current_thread().name)
        return times_two(inputs)

    with ServerThread(FunctionModel(row_signature(), noting)) as server:
        assert server.infer(row(1))[0] == 200
        assert names.get(timeout=PATIENCE) == "executor"

        def ran_on_the_loop() -> bool:
            assert server.infer(row(1))[0] == 200
            return names.get(timeout=PATIENCE) != "executor"

        await_condition(ran_on_the_loop)


def test_what_turns_slow_leaves_the_loop() -> None:
    cost = CostModel(inline_allowed=True)
    assert not cost.may_run_inline(1)
    cost.observe(1, 50e-6)
    assert cost.may_run_inline(1) and not cost.may_run_inline(8)
    cost.observe(1, 0.2)
    assert not cost.may_run_inline(1)
    for _ in range(100):
        cost.observe(1, 50e-6)
    assert cost.may_run_inline(1)
    never = CostModel(inline_allowed=False)
    never.observe(1, 50e-6)
    assert not never.may_run_inline(1)


def test_an_interrupted_execution_is_not_a_slow_model() -> None:
    cost = CostModel(inline_allowed=True)
    cost.observe(1, 50e-6)
    for _ in range(50):
        cost.observe(1, 5e-3)
        cost.observe(1, 5e-3)
        assert cost.may_run_inline(1)
        for _ in range(20):
            cost.observe(1, 50e-6)
    for _ in range(3):
        assert cost.may_run_inline(1)
        cost.observe(1, 0.5e-3)
    assert not cost.may_run_inline(1)
    cost.observe(2, 50e-6)
    cost.observe(2, 0.03)
    assert not cost.may_run_inline(2)


async def test_an_executor_that_cannot_start_fails_its_work() -> None:
    def missing_library() -> None:
        raise ImportError("no torch")

    executor = Executor(asyncio.get_running_loop(), prepare=missing_library)
    with pytest.raises(ImportError, match="no torch"):
        await executor.call(lambda: 1)
    working = Executor(asyncio.get_running_loop())
    assert await working.call(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        await working.call(lambda: 1 / 0)
    for one in (executor, working):
        one.stop()


@pytest.mark.parametrize("large", [True, False])
def test_max_batch_size_one_works(large: bool) -> None:
    model = GatedModel()
    model.permit()
    with ServerThread(model, Limits(max_batch_size=1)) as server:
        status, answer = server.infer(row(1, count=3 if large else 1))
        assert status == 200 and len(answer["outputs"][0]["data"]) == (6 if large else 2)
        assert set(model.executions) == {1}
