"""A signal that metrics have told of a version's pods and tell no more keeps every replica, and is named in status.

As after a metric was renamed or dropped, or a server's image was replaced under the same tag: Prometheus answers, pods
are scraped, and something is missing for so long that not even an old sample is left of it.
"""

import dataclasses
from collections.abc import Iterable

import pytest
from slipway.api.samples import MetricsView, Quality
from slipway.api.status import Role, SignalStatus, VersionStatus
from slipway.api.timestamps import format_time
from slipway.metrics.snapshot import Answers

from tests.scaling.scenes import (
    NOW,
    REVISION,
    decide,
    entry,
    long_low,
    metrics,
    outcome,
    pod,
    request,
    round_trip,
    starting,
    view,
)
from tests.scaling.test_scaling_faults import PODS, SCALERS, decided, healthy, read, settings, sized
from tests.scaling.test_scaling_signal_faults import (
    DEPTH,
    IN_FLIGHT,
    REQUESTS,
    UTILIZATION,
    WAITED,
    WAITS,
    whole,
)

SERIES = {
    "requests": (REQUESTS, WAITS, WAITED),
    "inFlight": (IN_FLIGHT,),
    "queueDepth": (DEPTH,),
    "queueTime": (WAITS, WAITED),
    "gpuUtilization": (UTILIZATION, "slipway_executor_busy_seconds_total"),
    "gpuMemory": ("DCGM_FI_DEV_FB_USED",),
}
"""What has to be gone for a signal to be."""
GUARDS = ["queueTime", "gpuUtilization", "gpuMemory"]


def without(names: Iterable[str], share: float = 1.0, answers: Answers | None = None) -> MetricsView:
    """The answers without some metrics of the first pods, as if these had never exported them."""
    hit, lost = {pod(number).name for number in range(int(PODS * share))}, set(names)

    def kept(labels: dict[str, str]) -> bool:
        return labels["__name__"] not in lost or (labels.get("exported_pod") or labels["pod"]) not in hit

    good = answers or whole()
    servers = tuple([item for item in result if kept(item["metric"])] for result in good.servers)
    gpus = [item for item in good.gpus if kept(item["metric"])]
    return read(dataclasses.replace(good, servers=servers, gpus=gpus))


def told(**lost: str) -> tuple[SignalStatus, ...]:
    return tuple(SignalStatus(name=name, lost_at=lost.get(name, "")) for name in SERIES)


def test_what_metrics_tell_is_remembered() -> None:
    assert decided(read(whole())).signals == told()
    known = {signal.name for signal in decided(read(dataclasses.replace(healthy(), gpus=[]))).signals}
    assert known == {"requests", "inFlight", "queueTime"}


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_a_signal_that_is_gone_removes_nothing(name: str, share: float) -> None:
    assert decided(read(whole()), signals=told(), gpu_exported=True).replicas < PODS
    after = decided(without(SERIES[name], share), signals=told(), gpu_exported=True)
    assert after.replicas == PODS


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_nor_does_it_where_only_the_gpu_scales(share: float) -> None:
    """Whose guard by waits knows nothing of servers that count neither requests nor waits."""
    assert decided(read(whole()), SCALERS["gpu"], signals=told(), gpu_exported=True).replicas < PODS
    after = decided(without(SERIES["requests"], share), SCALERS["gpu"], signals=told(), gpu_exported=True)
    assert after.replicas == PODS


@pytest.mark.parametrize("name", sorted({*SERIES} - {"queueDepth"}))
def test_nor_does_it_with_strategy_threshold(name: str) -> None:
    """Which reckons with no backlog."""
    spec = SCALERS["threshold"]
    assert decided(read(whole()), spec, signals=told(), gpu_exported=True).replicas < PODS
    assert decided(without(SERIES[name]), spec, signals=told(), gpu_exported=True).replicas == PODS


@pytest.mark.parametrize("name", ["queueDepth", "queueTime", "gpuMemory"])
def test_one_that_was_never_seen_is_no_fault(name: str) -> None:
    known = tuple(signal for signal in told() if signal.name != name)
    after = decided(without(SERIES[name]), signals=known, gpu_exported=True)
    assert after.replicas < PODS
    assert after.signals == known


@pytest.mark.parametrize("name", SERIES)
def test_status_says_since_when_it_is_gone(name: str) -> None:
    lost = without(SERIES[name])
    first = sized(lost, signals=told(), gpu_exported=True)
    signal = next(signal for signal in first.status.versions[0].signals if signal.name == name)
    assert signal.lost_at == format_time(NOW)
    before = format_time(NOW - 5400)
    later = sized(lost, signals=told(**{name: before}), gpu_exported=True)
    signal = next(signal for signal in later.status.versions[0].signals if signal.name == name)
    assert signal.lost_at == before
    if name not in {"gpuUtilization"}:
        assert f"{name} was told by these pods' metrics and is gone since 2025-06-15T13:36:40Z" in later.state.message


def test_one_that_is_back_ends_the_hold() -> None:
    lost = told(queueTime=format_time(NOW - 900), requests=format_time(NOW - 900))
    after = decided(read(whole()), signals=lost, gpu_exported=True)
    assert after.signals == told()
    assert after.replicas == 8


def test_while_prometheus_is_down_nothing_else_is_said_to_be_gone() -> None:
    down = MetricsView(NOW, False, "no connection")
    sizing = sized(down, signals=told(), gpu_exported=True)
    assert sizing.status.versions[0].replicas == PODS
    assert {signal.name for signal in sizing.status.versions[0].signals if signal.lost_at} == {"requests"}
    assert "no connection" in sizing.state.message


def test_a_server_that_counts_waits_from_the_first_request_on_has_lost_nothing_while_idle() -> None:
    good = whole()
    idle = [item | {"values": [[at, "0"] for at, _ in item["values"]]} for item in good.servers[1]]
    view = without(
        SERIES["queueTime"], answers=dataclasses.replace(good, servers=(good.servers[0], idle, *good.servers[2:]))
    )
    after = decided(view, signals=told(), gpu_exported=True)
    assert after.replicas < PODS
    assert after.signals == told()


def test_a_gpu_shared_with_a_neighbour_is_not_gone() -> None:
    good = whole()
    shared = [
        {**item, "metric": {**item["metric"], "exported_pod": f"other-{item['metric']['gpu']}"}} for item in good.gpus
    ]
    busyless = ("slipway_executor_busy_seconds_total",)
    view = without(busyless, answers=dataclasses.replace(good, gpus=[*good.gpus, *shared]))
    assert decided(view, signals=told(), gpu_exported=True).replicas < PODS


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("queueTime", {"queueTime": {"upper": "0s"}}),
        ("gpuUtilization", {"gpuUtilization": {"target": 0}}),
        ("gpuMemory", {"gpuMemory": {"upper": 0}}),
    ],
)
def test_a_guard_that_is_turned_off_holds_nothing(name: str, off: dict[str, object]) -> None:
    """The way out for whoever has dropped a metric for good."""
    spec = settings(**off)
    assert decided(without(SERIES[name]), spec, signals=told(), gpu_exported=name != "gpuUtilization").replicas < PODS


def test_more_is_ordered_all_the_same() -> None:
    for name in SERIES:
        now = request(2, 600.0, entry=entry(2, signals=(SignalStatus(name=name),)), metrics=metrics(arrivals=600.0))
        assert decide(now).replicas > 2


def test_pods_that_are_not_ready_need_not_count_yet() -> None:
    """A server that loads its model for ever has nothing to count and is no reason to keep the others."""
    broken = starting(10, 4000.0, waiting_reason="CrashLoopBackOff", restarts=9)
    pods = view(*(pod(number) for number in range(10)), broken)
    known = entry(11, plans=long_low(2), signals=(SignalStatus(name="requests"),))
    heard = dataclasses.replace(metrics(arrivals=100.0), uncounted_pods=frozenset({broken.name}))
    assert decide(request(10, 100.0, entry=known, view=pods, metrics=heard)).replicas < 11
    silent = dataclasses.replace(heard, uncounted_pods=frozenset({pod(3).name}))
    assert outcome(decide(request(10, 100.0, entry=known, view=pods, metrics=silent))) == (11, "MetricsPartial")


def test_an_experiment_whose_metrics_are_gone_keeps_its_replicas() -> None:
    """It has no weight, so that what stable counts says nothing of its requests."""
    known = entry(10, role=Role.EXPERIMENT, plans=long_low(1), signals=(SignalStatus(name="requests"),))
    gone = request(10, 500.0, entry=known, share=0.0)
    assert outcome(decide(gone)) == (10, "MetricsPartial")
    heard = dataclasses.replace(gone, metrics=metrics(arrivals=1.0))
    assert decide(heard).replicas < 10


def test_a_restarted_operator_remembers() -> None:
    before: VersionStatus = decided(without(SERIES["queueDepth"]), signals=told(), gpu_exported=True)
    assert round_trip(before).signals == before.signals
    assert before.revision == REVISION
    after = decided(without(SERIES["queueDepth"]), signals=round_trip(before).signals, gpu_exported=True)
    assert after.signals == before.signals
    assert after.replicas == PODS


def test_the_quality_of_what_is_gone_is_no_zero() -> None:
    lost = dataclasses.replace(metrics(arrivals=100.0), uncounted_pods=frozenset({pod(0).name}))
    assert lost.queue_time.quality is Quality.MISSING
    held = request(10, 100.0, entry=entry(10, plans=long_low(2), signals=told()), metrics=lost)
    assert decide(held).replicas == 10


@pytest.mark.parametrize("name", SCALERS)
def test_an_answer_that_may_lack_series_removes_nothing(name: str) -> None:
    """Pods may be among those that are scraped while the counters of one of them lie in a store that is away."""
    partial = sized(read(dataclasses.replace(healthy(), caveat="store is away")), SCALERS[name])
    assert partial.status.versions[0].replicas == PODS
    assert "Prometheus' answer may be incomplete: store is away" in partial.state.message


def test_it_adds_some_all_the_same() -> None:
    heard = dataclasses.replace(metrics(arrivals=900.0), caveat="store is away")
    assert decide(request(10, 900.0, metrics=heard)).replicas == 15
