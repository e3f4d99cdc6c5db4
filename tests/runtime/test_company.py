"""Waiting for company: what does not, and what no longer does."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slipway_runtime.serving.job import GroupKey, Job
from slipway_runtime.serving.service import Phase
from slipway_runtime.serving.waiting import WaitingLine
from slipway_runtime.settings import Limits

from tests.runtime.harness import (
    PATIENCE,
    FunctionModel,
    ServerThread,
    await_condition,
    echo,
    fetch,
    json_request,
    parse_metrics,
    row_signature,
    serving,
)
from tests.runtime.repository_server import RepositoryServer, model, write
from tests.runtime.test_runtime_process import FLAGS, journal
from tests.runtime.test_waiting_line import job

HOURS = 36_000.0
PAIRS = Limits(max_batch_size=2, max_delay=HOURS, timeout=HOURS, adaptive=False)
FORMS: tuple[GroupKey | None, ...] = ((("x", "FP32", (1,)),), (("x", "FP32", (2,)),), None)


def echoing(limits: Limits = PAIRS) -> ServerThread:
    return ServerThread(FunctionModel(row_signature(), echo), limits)


def sent(pool: ThreadPoolExecutor, server: ServerThread, value: float, width: int = 1) -> Future[tuple[int, Any]]:
    """A request of one row that waits in the queue."""
    before = server.on_loop(lambda: server.served.waiting)
    answer = pool.submit(server.infer, [[value] * width])
    await_condition(lambda: server.on_loop(lambda: server.served.waiting) == before + 1)
    return answer


def values(answer: tuple[int, Any]) -> Any:
    assert answer[0] == 200, answer
    return answer[1]["outputs"][0]["data"]


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.CLOSING])
@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_in_a_drain_nothing_waits_for_company(phase: Phase, cache_bytes: int) -> None:
    limits = Limits(max_batch_size=2, max_delay=HOURS, timeout=HOURS, adaptive=False, cache_bytes=cache_bytes)
    with echoing(limits) as server, ThreadPoolExecutor() as pool:
        accepted = sent(pool, server, 1.0)
        server.enter(phase)
        assert values(accepted.result(PATIENCE)) == [1.0]
        if phase is Phase.DRAINING:
            assert values(server.infer([[2.0]])) == [2.0]
            # And what was called off is: batches form again.
            server.enter(Phase.READY)
            first = sent(pool, server, 3.0)
            assert values(server.infer([[4.0]])) == [4.0] and values(first.result(PATIENCE)) == [3.0]


def test_a_request_that_waited_for_company_outlives_its_server(tmp_path: Path, model_files: dict[str, Path]) -> None:
    limits = ("--max-batch-size", "2", "--max-delay", "10m", "--adaptive", "false", "--timeout", "10m", "--grace", "5m")
    uri = model_files["doubler.pt"].as_uri()
    with serving(tmp_path, uri, *FLAGS, *limits, "--pre-stop", "0s") as server, ThreadPoolExecutor() as pool:
        server.await_ready()
        target = "/v2/models/m/infer"
        answer = pool.submit(fetch, server.address, "POST", target, json_request([[1.5] * 4]))
        await_condition(
            lambda: parse_metrics(fetch(server.address, "GET", "/metrics")[1].decode())["slipway_queue_depth"] == 1
        )
        server.terminate()
        status, body, _ = answer.result(PATIENCE)
        assert status == 200 and json.loads(body)["outputs"][0]["data"] == [3.0] * 4
        assert server.wait() == 0
    assert journal(tmp_path)[-1]["refused"] == 0


def test_a_model_that_was_replaced_waits_for_no_company(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a", 2), write(tmp_path / "b", 3)
    limits = Limits(max_batch_size=2, max_delay=HOURS, timeout=HOURS, adaptive=False)
    with RepositoryServer(model(one), limits=limits) as server, ThreadPoolExecutor() as pool:

        def waiting(places: int = 1) -> bool:
            counts = server.on_loop(lambda: [place.service.unfinished for place in server.repository.places("m")])
            return bool(counts == [places])

        first = server.repository.find("m")
        held = pool.submit(server.infer)
        await_condition(waiting)
        assert server.load(uri=two.as_uri())[0] == 200
        assert held.result(PATIENCE) == 2
        # The new one waits as it was told to, also when the old one is taken back.
        pair = [pool.submit(server.infer), pool.submit(server.infer)]
        assert [one.result(PATIENCE) for one in pair] == [3, 3]
        held = pool.submit(server.infer)
        await_condition(waiting)
        assert server.load(uri=one.as_uri(), sha256=first.sha256)[0] == 200
        assert held.result(PATIENCE) == 3
        held = pool.submit(server.infer)
        await_condition(waiting)
        assert not held.done()
        assert server.ask("POST", "/v2/repository/models/m/unload", {})[0] == 200
        assert held.result(PATIENCE) == 2


def test_nobody_is_late_for_company_or_lost_when_it_leaves() -> None:
    limits = Limits(max_batch_size=3, max_delay=HOURS, timeout=HOURS, adaptive=False)
    with echoing(limits) as server, ThreadPoolExecutor() as pool:
        leaving = sent(pool, server, 1.0)
        partner = server.on_loop(lambda: server.batcher._line.oldest())
        patient = sent(pool, server, 2.0)
        server.on_loop(lambda: server.batcher.cancel(partner))
        assert leaving.result(PATIENCE)[0] == 503
        # An execution may take 100 s: with less than twice that and a bit left, one goes at once, with who waits.
        server.on_loop(lambda: setattr(server.batcher._cost, "longest", 100.0))
        assert not patient.done()
        urgent = server.infer([[3.0]], timeout=150_000_000)
        assert values(urgent) == [3.0] and values(patient.result(PATIENCE)) == [2.0]


def test_a_pair_goes_past_one_that_waits() -> None:
    with echoing() as server, ThreadPoolExecutor() as pool:
        lone = sent(pool, server, 1.0)
        first = sent(pool, server, 2.0, width=2)
        assert values(server.infer([[3.0] * 2])) == [3.0, 3.0] and values(first.result(PATIENCE)) == [2.0, 2.0]
        assert not lone.done()
        assert values(server.infer([[4.0]])) == [4.0] and values(lone.result(PATIENCE)) == [1.0]


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 2), st.sampled_from([0.0, 2.0]), st.sampled_from(FORMS), st.floats(0.1, 50)),
    min_size=1,
    max_size=20,
)


@given(ARRIVALS, st.floats(0, 5), st.floats(0, 1), st.sets(st.integers(0, 19)))
def test_groups_are_due_when_one_of_them_is(
    arrivals: list[tuple[float, float, GroupKey | None, float]], delay: float, reserve: float, leaving: set[int]
) -> None:
    line, now, jobs = WaitingLine(), 0.0, list[Job]()
    for gap, lag, key, time in arrivals:
        now += gap
        jobs.append(job(now, lag, key, deadline=now + time))
        line.add(jobs[-1])
    latest = [one.latest_start for one in jobs]
    assert all(one.arrived < late < one.deadline for one, late in zip(jobs, latest, strict=True))
    for number in sorted(leaving):
        if number < len(jobs):
            line.remove(jobs[number])
            jobs[number].finish(())
    waiting = [one for number, one in enumerate(jobs) if number not in leaving]
    found = {company.first.key: company for company in line.companies(delay, reserve)}
    assert found.keys() == {one.key for one in waiting}
    for key, company in found.items():
        group = [one for one in waiting if one.key == key]
        assert company.first is min(group, key=lambda one: one.urgency)
        assert (company.jobs, company.rows) == (len(group), sum(one.rows for one in group))
        # Early because of one that has left is allowed; late because of nothing.
        assert company.due <= min(min(one.arrived + delay, one.latest_start - reserve) for one in group)
        assert key is not None or company.due < 0
