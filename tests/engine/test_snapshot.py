from collections.abc import Sequence
from typing import Any

import pytest
from slipway.api.samples import MetricsView
from slipway.engine.snapshot import SnapshotTicker
from slipway.engine.telemetry import Telemetry


class EnoughError(Exception):
    """Ends the loop under test."""


class Snapshot:
    def __init__(self, at: float, available: bool = True) -> None:
        self.at, self.available = at, available

    def view(self, namespace: str, model: str) -> MetricsView:
        return MetricsView(self.at, self.available, f"{namespace}/{model}")


class Source:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def want(self, namespace: str, model: str, queries: Sequence[str]) -> None:
        self.wanted = (namespace, model, tuple(queries))

    async def snapshot(self, now: float) -> Snapshot:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Snapshot(now, answer)


class Stage:
    def __init__(self, source: Source | None, rounds: int) -> None:
        self.now, self.rounds, self.ticks = 100.0, rounds, 0
        self.waits: list[float] = []
        self.telemetry = Telemetry()
        self.ticker = SnapshotTicker(
            source,
            period=5.0,
            wall=lambda: self.now,
            clock=lambda: self.now,
            on_snapshot=self.tick,
            telemetry=self.telemetry,
            sleep=self.sleep,
        )

    def tick(self) -> None:
        self.ticks += 1

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        if len(self.waits) == self.rounds:
            raise EnoughError

    async def run(self) -> MetricsView:
        with pytest.raises(EnoughError):
            await self.ticker.run()
        return self.ticker.view("ns", "m")


async def test_the_newest_snapshot_is_kept():
    stage = Stage(Source(True, True), rounds=2)
    view = await stage.run()
    assert (view.at, view.available, view.error) == (105.0, True, "ns/m")
    assert (stage.ticks, stage.waits) == (2, [5.0, 5.0])


async def test_a_failed_one_takes_the_place_of_a_good_one():
    assert not (await Stage(Source(True, False), rounds=2).run()).available


async def test_a_source_that_breaks_means_no_metrics():
    stage = Stage(Source(True, RuntimeError("odd answer")), rounds=2)
    view = await stage.run()
    assert (view.available, view.error) == (False, "RuntimeError: odd answer")
    text = stage.telemetry.exposition().decode()
    assert 'metrics_snapshots_total{result="failed"} 1.0' in text
    assert "metrics_snapshot_age_seconds 5.0" in text
    assert stage.ticks == 2


async def test_without_a_source_it_only_ticks():
    stage = Stage(None, rounds=3)
    view = await stage.run()
    assert "no Prometheus is configured" in view.error
    assert stage.ticks == 3


def test_before_the_first_one():
    assert Stage(Source(), rounds=1).ticker.view("ns", "m").error == "no snapshot yet"


def test_expressions_go_to_the_source():
    source = Source()
    Stage(source, rounds=1).ticker.want("ns", "m", ["up"])
    assert source.wanted == ("ns", "m", ("up",))
    Stage(None, rounds=1).ticker.want("ns", "m", ["up"])
