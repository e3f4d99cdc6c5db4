"""The queue's order and the cost model: pure parts of batching."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway_runtime.models.model import OutOfMemory
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.serving.batch import run_batch
from slipway_runtime.serving.cost import BatchTarget, CostModel
from slipway_runtime.serving.job import GroupKey, Job, JobState
from slipway_runtime.serving.waiting import REQUEST_LAG, TENANT_LAG, WaitingLine, lag_of
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec

KEYS: tuple[GroupKey | None, ...] = ((("x", "FP32", (2,)),), (("x", "FP32", (3,)),), None)


def job(arrived: float, lag: float = 0.0, key: GroupKey | None = KEYS[0], rows: int = 1, deadline: float = 1e9) -> Job:
    return Job(InferRequest(()), rows, key, arrived, lambda _: None, deadline, lag)


JOBS = st.lists(
    st.tuples(st.floats(0, 2), st.sampled_from([0.0, 1.0, 2.0, 6.0]), st.sampled_from(KEYS), st.integers(1, 5)),
    max_size=30,
)


@given(JOBS, st.integers(1, 8), st.sets(st.integers(0, 29)))
def test_batches_follow_urgency_and_keep_their_bounds(
    given_jobs: list[tuple[float, float, GroupKey | None, int]], most: int, leaving: set[int]
) -> None:
    line = WaitingLine()
    now, jobs = 0.0, []
    for gap, lag, key, rows in given_jobs:
        now += gap
        jobs.append(job(now, lag, key, rows))
        line.add(jobs[-1])
    for number in leaving:
        if number < len(jobs):
            line.remove(jobs[number])
            jobs[number].finish(())
    waiting = [one for one in jobs if one.state is JobState.QUEUED]
    while waiting:
        assert len(line) == len(waiting)
        first = min(waiting, key=lambda one: one.arrived + one.lag)
        assert line.oldest() is first
        count, rows = line.beside(first)
        company = [one for one in waiting if one.key == first.key] if first.key else [first]
        assert (count, rows) == (len(company), sum(one.rows for one in company))
        batch, late = line.take(most)
        assert not late and batch[0] is first
        assert len({one.key for one in batch}) == 1 and (batch[0].key is not None or len(batch) == 1)
        assert len(batch) == 1 or sum(one.rows for one in batch) <= most
        urgency = [one.arrived + one.lag for one in batch]
        assert urgency == sorted(urgency)
        for one in batch:
            waiting.remove(one)
    assert len(line) == 0 and line.oldest() is None and not line._groups and not line._arrivals


@given(st.integers(0, 2**63), st.floats(0, 1), st.floats(0.01, 1))
def test_nothing_starves(priority: int, tenant_lag: float, gap: float) -> None:
    """However many important requests come, a waiting one is next after its lag."""
    line = WaitingLine()
    waiting = job(0.0, lag_of(priority, tenant_lag))
    line.add(waiting)
    assert waiting.lag <= REQUEST_LAG + TENANT_LAG
    for turn in itertools.count(1):
        line.add(job(turn * gap, lag_of(1)))
        batch, _ = line.take(1)
        if batch == [waiting]:
            break
        assert turn * gap <= waiting.lag + gap


def test_tenants_come_before_priorities_and_priorities_before_none() -> None:
    assert lag_of(1) < lag_of(2) < lag_of(3) < lag_of(9) < lag_of(0)
    assert lag_of(17) == lag_of(2**63)
    assert lag_of(0, 0.0) < lag_of(1, 0.9)


def test_a_batch_is_filled_from_lower_levels() -> None:
    line = WaitingLine()
    for arrived, lag in ((0.0, 2.0), (0.1, 0.0), (0.2, 2.0)):
        line.add(job(arrived, lag))
    batch, _ = line.take(8)
    assert [one.arrived for one in batch] == [0.1, 0.0, 0.2]


def test_what_is_too_late_is_handed_back() -> None:
    line = WaitingLine()
    for arrived, deadline in ((0.0, 5.0), (0.1, 20.0), (0.2, 6.0), (0.3, 20.0)):
        line.add(job(arrived, deadline=deadline))
    batch, late = line.take(2, start_by=10.0)
    assert [one.arrived for one in late] == [0.0, 0.2]
    assert [one.arrived for one in batch] == [0.1, 0.3]
    assert len(line) == 0


def test_the_line_through_the_costs_is_found() -> None:
    cost = CostModel(inline_allowed=False)
    assert cost.at_least(32) == 0.0 and cost.rows_within(0.0, 32) == 32
    for turn in range(200):
        rows = 1 + turn * 7 % 32
        cost.observe(rows, 0.010 + 0.001 * rows)
    fixed, per_row = cost.line()
    assert fixed == pytest.approx(0.010, rel=1e-3) and per_row == pytest.approx(0.001, rel=1e-3)
    assert cost.rows_within(0.030, 32) == pytest.approx(20, abs=1)
    assert cost.rows_within(1.0, 32) == 32
    assert cost.rows_within(0.001, 32) == cost.rows_within(-5.0, 32) == 1
    assert 0.010 * 0.8 < cost.at_least(1) < 0.011


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 10)), min_size=1, max_size=50), st.integers(1, 64))
def test_no_history_makes_costs_negative_or_batches_empty(history: list[tuple[int, float]], most: int) -> None:
    cost = CostModel(inline_allowed=False)
    for rows, seconds in history:
        cost.observe(rows, seconds)
        assert all(part >= 0 for part in cost.line())
        assert cost.at_least(1) >= 0
        assert 1 <= cost.rows_within(0.01, most) <= most
    assert cost.rows_within(1e9, most) == most


def test_the_longest_execution_is_known_and_fades() -> None:
    cost = CostModel(inline_allowed=False)
    cost.observe(1, 0.001)
    cost.observe(32, 2.0)
    assert cost.longest == 2.0
    for _ in range(1000):
        cost.observe(1, 0.001)
    assert cost.longest == pytest.approx(0.001, rel=0.2)


def test_from_one_size_less_is_not_concluded_to_cost_as_much() -> None:
    cost = CostModel(inline_allowed=False)
    for _ in range(20):
        cost.observe(32, 0.32)
    assert cost.at_least(1) <= 0.01
    assert cost.rows_within(0.1, 32) == 10


def test_the_target_halves_and_grows_by_one() -> None:
    target = BatchTarget(32)
    target.in_time()
    assert target.rows == 32
    target.too_late(20)
    assert target.rows == 10
    target.too_late(32)
    target.in_time()
    assert target.rows == 6
    for _ in range(5):
        target.too_late(1)
    assert target.rows == 1
    for _ in range(100):
        target.in_time()
    assert target.rows == 32


class SmallDevice:
    """Rows come back as they are; more of them at once than ``room`` do not fit."""

    platform = "test"
    on_accelerator = True
    signature = Signature((TensorSpec("x", Datatype.FP32, (-1, 1)),), (TensorSpec("y", Datatype.FP32, (-1, 1)),), True)

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self.executions: list[int] = []

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        array = inputs[0].array
        self.executions.append(len(array))
        if len(array) > self._room():
            raise OutOfMemory
        return (Tensor("y", Datatype.FP32, array),)


def rows_of(value: float, count: int) -> tuple[Tensor, ...]:
    return (Tensor("x", Datatype.FP32, np.full((count, 1), value, dtype=np.float32)),)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 9))
def test_memory_that_is_short_halves_what_runs_at_once(counts: list[int], room: int) -> None:
    model = SmallDevice(lambda: room)
    outcomes = run_batch(model, [rows_of(n, count) for n, count in enumerate(counts)], counts, 16)
    for number, (count, outcome) in enumerate(zip(counts, outcomes, strict=True)):
        if room:
            assert isinstance(outcome, tuple) and outcome[0].array.tolist() == [[float(number)]] * count
        else:
            assert isinstance(outcome, RequestFailure) and outcome.status == 503 and outcome.retry_after


def test_halving_takes_few_executions() -> None:
    model = SmallDevice(lambda: 8)
    outcomes = run_batch(model, [rows_of(1, 1)] * 16, [1] * 16, 16)
    assert all(isinstance(one, tuple) for one in outcomes)
    assert model.executions == [16, 8, 8]
