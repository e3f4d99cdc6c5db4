"""Numbers of several processes in one exposition: sums that never fall, whoever dies."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from slipway_runtime.metrics.exposition import Registry, render
from slipway_runtime.metrics.recorder import ServingMetrics
from slipway_runtime.metrics.sheet import Kind, Merge, Series, SharedSheet, Sheet, bury
from slipway_runtime.metrics.statistics import ModelStatistics

from tests.runtime.harness import parse_metrics


def metrics_of(sheet: Sheet) -> ServingMetrics:
    return ServingMetrics("m", "v1", "r", sheet)


def exposed(sheet: Sheet) -> dict[str, float]:
    return parse_metrics(render(sheet).decode())


OK = 'slipway_requests_total{code="200",shadow="false"}'


def test_every_worker_answers_with_the_sum(tmp_path: Path) -> None:
    sheets = [SharedSheet(tmp_path, slot) for slot in range(3)]
    workers = [metrics_of(sheet) for sheet in sheets]
    for number, worker in enumerate(workers):
        for _ in range(number + 1):
            worker.request_finished(200, False, 0.004)
        worker.in_flight.add(number)
        worker.load_seconds.set(float(number))
        worker.batch_finished(number + 1, [0.001])
        worker.publish_busy(0.5)
    workers[1].request_finished(418, False, 2.0)  # a series that the others do not have
    for sheet in sheets:
        found = exposed(sheet)
        assert found[OK] == 6
        assert found['slipway_requests_total{code="418",shadow="false"}'] == 1
        assert found["slipway_requests_in_flight"] == 3
        assert found["slipway_model_load_seconds"] == 2
        assert found["slipway_request_rows_total"] == 6
        assert found["slipway_executor_busy_seconds_total"] == 1.5
        assert found['slipway_request_duration_seconds_bucket{shadow="false",le="0.005"}'] == 6
        assert found['slipway_request_duration_seconds_bucket{shadow="false",le="+Inf"}'] == 7
        assert found['slipway_request_duration_seconds_sum{shadow="false"}'] == pytest.approx(2.024)
        text = render(sheet).decode()
        assert text.count("# TYPE slipway_requests_total counter") == 1


def test_a_successor_counts_on_and_holds_nothing(tmp_path: Path) -> None:
    first = SharedSheet(tmp_path, 0)
    other = SharedSheet(tmp_path, 1)
    worker, neighbour = metrics_of(first), metrics_of(other)
    worker.request_finished(200, False, 0.1)
    worker.in_flight.add(5)
    worker.publish_busy(3.0)
    neighbour.request_finished(200, False, 0.1)
    neighbour.ready.set(1.0)
    before = exposed(other)
    bury(tmp_path, 0)
    dead = exposed(other)
    assert dead[OK] == before[OK] == 2
    assert (before["slipway_requests_in_flight"], dead["slipway_requests_in_flight"]) == (5, 0)
    again = metrics_of(SharedSheet(tmp_path, 0))
    assert exposed(other)[OK] == 2
    again.request_finished(200, False, 0.1)
    again.publish_busy(0.25)
    found = exposed(other)
    assert found[OK] == 3
    assert found["slipway_executor_busy_seconds_total"] == 3.25
    assert found["slipway_model_ready"] == 1
    bury(tmp_path, 7)  # one that never began


def _count(folder: Path, slot: int, times: int) -> None:
    metrics = metrics_of(SharedSheet(folder, slot))
    for _ in range(times):
        metrics.request_finished(200, False, 0.001)


def test_what_other_processes_counted_stays_when_they_are_gone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        process = context.Process(target=_count, args=(tmp_path, 1, 50))
        process.start()
        process.join(60)
        assert process.exitcode == 0
    assert exposed(SharedSheet(tmp_path, 0))[OK] == 100


def test_a_series_in_the_making_is_not_read(tmp_path: Path) -> None:
    reader = SharedSheet(tmp_path, 0)
    writer = Registry({}, SharedSheet(tmp_path, 1))
    writer.value("counter", "whole", "Text.").add(2)
    line = Series(Kind.COUNTER, "half", "").line()
    directory = tmp_path / "1.series"
    with directory.open("ab") as file:
        file.write(line[:7])
    assert exposed(reader) == {"whole": 2}
    with directory.open("ab") as file:
        file.write(line[7:])
    assert exposed(reader) == {"whole": 2, "half": 0}


def test_there_is_an_end_to_the_series(tmp_path: Path) -> None:
    registry = Registry({}, SharedSheet(tmp_path, 0))
    with pytest.raises(MemoryError, match="more series"):
        for number in range(100):
            registry.histogram(f"h{number}", "", [float(bound) for bound in range(1000)])


@pytest.mark.parametrize(("merge", "value"), [(Merge.SUM, 9), (Merge.MEAN, 3), (Merge.HIGHEST, 6)])
def test_values_are_merged_as_the_series_says(tmp_path: Path, merge: Merge, value: float) -> None:
    sheets = [SharedSheet(tmp_path, slot) for slot in range(3)]
    for number, sheet in enumerate(sheets):
        Registry({}, sheet).value("gauge", "g", "Text.", merge).set(1.0 + number if number < 2 else 6.0)
    assert exposed(sheets[0]) == {"g": value}


def test_statistics_are_those_of_all_workers(tmp_path: Path) -> None:
    sheets = [SharedSheet(tmp_path, slot) for slot in range(2)]
    workers = [ModelStatistics(sheet, "m", "v1") for sheet in sheets]
    other = ModelStatistics(sheets[0], "m", "v10")
    workers[0].batch_finished(4, [0.1, 0.3], 0.5)
    workers[1].batch_finished(8, [0.2], 0.25)
    workers[1].request_finished(True, 1.0)
    workers[0].request_finished(False, 2.0)
    other.batch_finished(100, [9.0], 9.0)
    for worker in workers:
        found = worker.document("m", "v1")
        assert (found["inference_count"], found["execution_count"]) == (12, 2)
        assert found["inference_stats"]["queue"]["count"] == 3
        assert found["inference_stats"]["queue"]["ns"] == pytest.approx(600_000_000)
        assert found["inference_stats"]["success"] == {"count": 1, "ns": 1_000_000_000}
        assert found["inference_stats"]["fail"] == {"count": 1, "ns": 2_000_000_000}
        assert [entry["batch_size"] for entry in found["batch_stats"]] == [4, 8]
        assert found["last_inference"] > 0
    # They are no metrics.
    assert render(sheets[0]) == b""
