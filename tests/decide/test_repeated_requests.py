"""Whole decisions on repeated requests and on the user's own expressions."""

from dataclasses import dataclass, field, replace
from typing import Any

from slipway.api.samples import MetricsView, Quality, Sample, ShadowPair, ShadowResult, ShadowSeries
from slipway.api.status import Outcome

from tests.decide.world import KEEP_SECONDS, World

CHECK = {"name": "agreement", "metric": "shadowAgreement", "minValue": "0.98"}


@dataclass
class ShadowWorld(World):
    """Stable compares ten answers a second; ``differing`` of ten differ from the candidate's."""

    differing: int = 0
    value: float | None = None
    """Of every expression that was asked for."""
    began: dict[str, float] = field(default_factory=dict)

    def metrics(self) -> MetricsView:
        view = super().metrics()
        rollout = self.status.rollout
        if rollout is None or rollout.from_revision not in view.revisions or self.metrics_fault:
            return view
        candidate = rollout.to_revision
        began = self.began.setdefault(candidate, self.now)
        metrics = view.revisions[rollout.from_revision]
        times = [at for at, _ in metrics.requests[0].samples if at >= self.now - KEEP_SECONDS]
        rates = {ShadowResult.AGREE: 10 - self.differing, ShadowResult.DIFFER: self.differing}
        shadows = tuple(
            ShadowSeries(
                metrics.requests[0].pod,
                candidate,
                pair,
                result,
                tuple((at, float(int(rate * max(0.0, at - began)))) for at in times),
            )
            for pair, rates_ in ((ShadowPair.CANDIDATE, rates), (ShadowPair.SELF, {ShadowResult.AGREE: 3}))
            for result, rate in rates_.items()
        )
        queries: dict[str, Sample] = {}
        if self.value is not None and self.last is not None:
            queries = {query: Sample(self.value, Quality.OK, self.now) for query in self.last.queries}
        revisions = {**view.revisions, rollout.from_revision: replace(metrics, shadows=shadows)}
        return replace(view, revisions=revisions, queries=queries)


def shadowing(check: dict[str, Any] = CHECK, **rollout: Any) -> ShadowWorld:
    world = ShadowWorld()
    analysis = {"interval": "10s", "checks": [check]}
    world.raw["spec"]["rollout"] = {"strategy": "Shadow", "shadow": {"percent": 10}, "analysis": analysis} | rollout
    world.run(60)
    assert world.status.stable == "v1"
    world.serve("v2")
    return world


def test_a_candidate_that_answers_the_same_is_switched_to() -> None:
    world = shadowing()
    shares = set()
    for _ in range(300):
        world.tick()
        shares.add(world.weight("v2"))
    assert world.status.stable == "v2"
    assert shares == {0, 100}


def test_answers_are_compared_even_where_no_check_says_so() -> None:
    world = shadowing({"name": "errors", "metric": "errorRate", "maxValue": "0.05"})
    world.differing = 2
    world.run(120)
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK
    assert {check.name: check.verdict.value for check in world.status.analysis}["agreement"] == "Harmful"


def test_one_that_answers_otherwise_never_serves_anybody() -> None:
    world = shadowing()
    world.differing = 2
    for _ in range(120):
        world.tick()
        assert world.weight("v2") == 0
    assert world.status.stable == "v1"
    finished = world.status.history[-1]
    assert finished.outcome is Outcome.ROLLED_BACK
    assert "agreement" in finished.evidence


def test_without_metrics_it_waits_and_says_why() -> None:
    world = shadowing()
    world.run(20)
    world.metrics_fault = "down"
    world.run(300)
    assert world.weight("v2") == 0
    assert world.status.rollout is not None
    assert world.status.rollout.reason == "MetricsUnavailable"
    world.metrics_fault = ""
    world.run(300)
    assert world.status.stable == "v2"


def test_expressions_are_asked_while_there_is_a_candidate_and_judged() -> None:
    query = 'sum(clicks{version="{{version}}",model="{{name}}"})'
    world = shadowing({"name": "clicks", "query": query, "min": "10"}, strategy="Canary")
    assert world.tick().queries == ('sum(clicks{version="v2",model="m"})',)
    world.value = 3
    world.run(120)
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK
    assert world.status.analysis[0].reason == "OutOfBounds"
    assert world.tick().queries == ()
