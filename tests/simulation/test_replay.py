"""The simulated plant, the rivals' algorithms, and what the production decision does in it."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from slipway.api.errors import SlipwayError
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus
from slipway.simulation.load import Load
from slipway.simulation.plant import Plant, start_times
from slipway.simulation.replay import Conditions, Result, matched, replay
from slipway.simulation.rivalry import against, chosen_rivals
from slipway.simulation.rivals import HpaPolicy, KedaPolicy, KpaPolicy
from slipway.simulation.scrapes import Fault, FaultKind, Scrapes, parse_faults
from slipway.simulation.slipway_policy import SlipwayPolicy

CLUSTER = Conditions(capacity=100.0, cold_start=60.0, replicas=4)


def spec(**settings: Any) -> ModelDeploymentSpec:
    scaling = {"minReplicas": 1, "maxReplicas": 40, "qps": {"target": 60}} | settings
    return ModelDeploymentSpec.model_validate(
        {"versions": [{"name": "v1", "uri": "file:///m"}], "autoscaling": scaling}
    )


def load(*parts: tuple[float, int]) -> Load:
    """A load of constant parts: rate and seconds."""
    return Load("parts", tuple(rate for rate, seconds in parts for _ in range(seconds)))


def changes(result: Result) -> list[int]:
    wanted = [moment.wanted for moment in result.course]
    return [after - before for before, after in itertools.pairwise(wanted) if after != before]


def plant(replicas: int) -> Plant:
    return Plant.started(replicas, 100.0, lambda: 60.0, objective=2.0, places=1000)


def test_requests_are_served_in_their_order_and_wait_while_there_are_too_few_pods() -> None:
    one = plant(1)
    for _ in range(10):
        one.step(150.0)
    assert one.totals.served == pytest.approx(1000.0)
    assert one.backlog == pytest.approx(500.0)
    for _ in range(5):
        one.step(0.0)
    assert one.backlog == 0
    assert one.totals.waited > 0
    assert one.totals.late > 0, "the last ones waited for five seconds"
    assert one.totals.busy == pytest.approx(15.0)


def test_nobody_waits_for_ever() -> None:
    none = plant(0)
    for _ in range(40):
        none.step(1.0)
    assert none.totals.late == pytest.approx(9.0), "after 30 s a request is given up"


def test_pods_take_their_time_and_those_that_start_go_first() -> None:
    two = plant(2)
    two.scale(4)
    assert (len(two.pods), two.ready) == (4, 2)
    two.scale(3)
    assert two.ready == 2
    for _ in range(60):
        two.step(0.0)
    assert two.ready == 3
    two.scale(2)
    assert [pod.number for pod in two.pods] == [0, 1], "the youngest goes"
    two.places = 3
    two.scale(9)
    assert (len(two.pods), two.wanted) == (3, 9)


def test_start_times_scatter_around_their_median_and_can_be_repeated() -> None:
    draw, again = start_times(60.0, 7), start_times(60.0, 7)
    drawn = sorted(draw() for _ in range(1000))
    assert drawn == sorted(again() for _ in range(1000))
    assert 57 < drawn[500] < 63
    assert 72 < drawn[900] < 84


def seen(policy: Any, rates: Sequence[float], replicas: int = 4, faults: Sequence[Fault] = ()) -> list[int]:
    """What a policy wants at each of its looks."""
    cluster, scrapes, wanted, due = plant(replicas), Scrapes(faults), [], 0.0
    cluster.draw_start = lambda: 0.0
    for rate in rates:
        cluster.step(rate)
        scrapes.take(cluster)
        if cluster.now >= due:
            due = cluster.now + policy.period
            cluster.scale(policy.wanted(cluster, scrapes))
            wanted.append(cluster.wanted)
    return wanted


def test_hpa_takes_the_total_by_the_target_and_leaves_a_tenth_alone() -> None:
    assert seen(HpaPolicy(60.0, 1, 40), [250.0] * 300)[-1] == 4
    assert seen(HpaPolicy(60.0, 1, 40), [300.0] * 300)[-1] == 5


def test_hpa_doubles_or_adds_four_at_most_per_sync() -> None:
    steps = seen(HpaPolicy(60.0, 1, 40), [240.0] * 90 + [2400.0] * 200)
    assert max(after - before for before, after in itertools.pairwise(steps)) <= 20
    assert steps[-1] == 40
    assert next(step for step in steps if 4 < step < 40) <= 8


def test_hpa_goes_down_only_to_the_highest_recommendation_of_five_minutes() -> None:
    steps = seen(HpaPolicy(60.0, 1, 40), [480.0] * 400 + [60.0] * 700, replicas=8)
    first = next(index for index, step in enumerate(steps) if step < 8)
    assert 400 + 300 <= 15 * first <= 400 + 400


def test_hpa_holds_without_a_metric_and_keda_takes_it_for_nothing() -> None:
    fault = [Fault(FaultKind.EMPTY, 400.0, 1200.0)]
    assert min(seen(HpaPolicy(60.0, 1, 40), [480.0] * 1200, replicas=8, faults=fault)) == 8
    assert min(seen(KedaPolicy(60.0, 1, 40), [480.0] * 1200, replicas=8, faults=fault)) == 1, "keda #3065"


def test_kpa_panics_on_a_burst_and_removes_nothing_while_it_does() -> None:
    rates = [240.0] * 120 + [2000.0] * 6 + [10.0] * 40
    steps = seen(KpaPolicy(60.0, 1, 40), rates)
    assert max(steps) >= 17
    assert steps[-1] == max(steps)


def test_kpa_halves_at_most() -> None:
    steps = seen(KpaPolicy(60.0, 1, 40), [960.0] * 120 + [1.0] * 120, replicas=16)
    assert all(after >= before // 2 for before, after in itertools.pairwise(steps))
    assert steps[-1] == 1


def test_a_rivals_cost_is_matched() -> None:
    waves = (600 + 400 * math.sin(second / 900) + 20 * math.sin(second) for second in range(7200))
    shape = Load("waves", tuple(waves))
    own = replay(SlipwayPolicy(spec()), shape, CLUSTER)
    for rival in against(own, ("hpa", "keda", "kpa"), shape, CLUSTER, spec().autoscaling):
        assert abs(rival.pod_hours / own.pod_hours - 1) <= 0.02, rival.policy
        assert rival.target is not None


def test_a_cost_that_cannot_be_had_gives_the_nearest() -> None:
    shape = load((200.0, 600))
    result = matched(lambda target: HpaPolicy(target, 1, 4), shape, CLUSTER, 1000.0, start=60.0)
    assert result.pod_hours <= 4 * 600 / 3600


def test_rivals_are_known_by_name() -> None:
    assert chosen_rivals("hpa, kpa") == ("hpa", "kpa")
    with pytest.raises(SlipwayError, match="among hpa, keda, kpa"):
        chosen_rivals("hpa,vpa")


def test_the_decision_follows_the_load_and_says_why() -> None:
    policy = SlipwayPolicy(spec())
    result = replay(policy, load((200.0, 600), (600.0, 1200), (100.0, 2400)), CLUSTER)
    assert result.largest >= 10
    assert result.course[-1].wanted < 8
    assert {item.reason for item in policy.decisions} >= {"ScaledDown"}
    assert len(policy.decisions) == result.scalings


@pytest.mark.parametrize("kind", [kind for kind in FaultKind if kind is not FaultKind.GPU])
@pytest.mark.parametrize("strategy", ["Target", "Threshold"])
def test_no_fault_of_the_metrics_removes_a_replica(kind: FaultKind, strategy: str) -> None:
    """A quarter of the load is left when the fault begins: everything but the metrics speaks for fewer replicas."""
    shape = load((400.0, 900), (40.0, 3000))
    settings = spec(strategy=strategy, stabilizationWindow="1m", cooldown="30s")
    conditions = dataclasses.replace(CLUSTER, replicas=8, faults=(Fault(kind, 900.0, 3000.0),))
    result = replay(SlipwayPolicy(settings), shape, conditions)
    during = [moment.wanted for moment in result.course if 900 <= moment.at <= 3000]
    assert during == sorted(during), "never lower"
    assert result.course[-1].wanted < during[-1], "and lower once the metrics are back"


def test_a_pending_storm_stays_bounded() -> None:
    """The cluster has room for six, the load asks for thirty."""
    conditions = dataclasses.replace(CLUSTER, places=6)
    result = replay(SlipwayPolicy(spec()), load((240.0, 600), (1800.0, 3000)), conditions)
    assert result.largest <= 12
    assert result.course[-1].wanted <= 6 + 2


@pytest.mark.parametrize("rate", [38.0, 40.0, 42.0, 76.0, 79.0, 80.0, 84.0, 120.0, 160.0])
def test_no_oscillation_at_the_edges_of_the_band(rate: float) -> None:
    noisy = Load("edge", tuple(rate * (1.06 if second // 30 % 2 else 0.94) for second in range(7200)))
    settings = spec(strategy="Threshold", gpuUtilization={"upper": 30, "lower": 29})
    result = replay(SlipwayPolicy(settings), noisy, dataclasses.replace(CLUSTER, replicas=2))
    assert result.reversals == 0
    assert len(changes(result)) <= 2


@pytest.mark.parametrize("at", [700.0, 1000.0, 1400.0])
def test_a_restart_amid_window_or_cooldown_changes_nothing(at: float) -> None:
    shape = load((400.0, 600), (100.0, 2400))
    conditions = dataclasses.replace(CLUSTER, replicas=7)
    whole = replay(SlipwayPolicy(spec()), shape, conditions)
    restarted = replay(_Restarted(spec(), at), shape, conditions)
    assert restarted.scalings == whole.scalings > 0
    assert restarted.course == whole.course


class _Restarted:
    """Another operator from a moment on, which knows nothing but the status as it is in the API server."""

    name, period = "slipway", 15.0

    def __init__(self, settings: ModelDeploymentSpec, at: float) -> None:
        self._settings, self._at = settings, at
        self._policy = SlipwayPolicy(settings)
        self._restarted = False

    def wanted(self, cluster: Plant, scrapes: Scrapes) -> int:
        if cluster.now >= self._at and not self._restarted:
            self._restarted = True
            written = self._policy.status.to_wire() if self._policy.status else {}
            self._policy = SlipwayPolicy(self._settings)
            self._policy.status = ModelDeploymentStatus.from_wire(written)
        return self._policy.wanted(cluster, scrapes)


def test_faults_are_read_from_text() -> None:
    assert parse_faults("down@10m+5m, half@1h+10s") == (
        Fault(FaultKind.DOWN, 600.0, 900.0),
        Fault(FaultKind.HALF, 3600.0, 3610.0),
    )
    assert parse_faults("") == ()
    for text in ("down", "down@10m", "fire@1m+1m", "down@x+1m"):
        with pytest.raises(SlipwayError, match="KIND@START"):
            parse_faults(text)
