"""No fault of the metrics ever removes a replica: from what Prometheus answers to the decision.

Ten pods under a load that needs two, for so long that window and cooldown have passed: without the fault the decision
is to remove some, which the first test shows.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from functools import partial
from operator import mul
from typing import Any

import pytest
from slipway.api.observed import Observed
from slipway.api.samples import MetricsView
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, PlanSample, Role, VersionStatus, VersionWeight
from slipway.api.timestamps import format_time
from slipway.engine.sizing import Sizing, scale
from slipway.metrics.snapshot import Answers, read_answers

from tests.scaling.scenes import NOW, REVISION, pod, view

PODS = 10
SCRAPES = [NOW - 3 - 15 * n for n in range(19, -1, -1)]
LABELS = {"namespace": "n", "model": "m", "version": "v1", "revision": REVISION}
Result = list[dict[str, Any]]


def series(name: str, number: int, value: Callable[[int], float], **labels: str) -> dict[str, Any]:
    pod_name = pod(number).name
    target = {"pod": pod_name, "instance": f"{pod_name}:8080"}
    values = [[at, repr(value(step))] for step, at in enumerate(SCRAPES)]
    return {"metric": {"__name__": name, **LABELS, **target, **labels}, "values": values}


def healthy() -> Answers:
    """Ten pods at 10 requests a second each, nothing waiting, GPUs at 10 %."""
    numbers = range(PODS)
    gauges = [series("slipway_requests_in_flight", number, lambda step: 1.0) for number in numbers]
    counters = [series("slipway_requests_total", number, lambda step: 150.0 * step, code="200") for number in numbers]
    waits = [
        series(f"slipway_queue_duration_seconds_{part}", number, partial(mul, share))
        for number in numbers
        for part, share in (("sum", 0.1), ("count", 150.0))
    ]
    gpus = [
        {
            "metric": {
                "__name__": name,
                "gpu": str(number),
                "UUID": f"GPU-{number}",
                "exported_pod": pod(number).name,
                "exported_namespace": "n",
            },
            "values": [[at, value] for at in SCRAPES[-4:]],
        }
        for number in numbers
        for name, value in (
            ("DCGM_FI_DEV_GPU_UTIL", "10"),
            ("DCGM_FI_DEV_FB_USED", "1000"),
            ("DCGM_FI_DEV_FB_FREE", "9000"),
        )
    ]
    return Answers((gauges, counters, [], waits), gpus, [])


def settings(**fields: Any) -> ModelDeploymentSpec:
    scaling = {"minReplicas": 1, "maxReplicas": 20, "qps": {"target": 60}} | fields
    return ModelDeploymentSpec.model_validate(
        {"versions": [{"name": "v1", "uri": "file:///m"}], "autoscaling": scaling}
    )


def sized(metrics: MetricsView, spec: ModelDeploymentSpec | None = None, **fields: Any) -> Sizing:
    """The sizing of ten pods; ``fields`` are those of the version's status."""
    plans = tuple(PlanSample(at=format_time(NOW - age), replicas=2) for age in range(660, 0, -30))
    entry = VersionStatus(
        name="v1",
        revision=REVISION,
        role=Role.STABLE,
        replicas=PODS,
        weight=VersionWeight(intended=100, applied=100),
        plans=plans,
        scaled_at=format_time(NOW - 3600),
        **fields,
    )
    observed = Observed("m", "n", "u", 1, {REVISION: view(*(pod(number) for number in range(PODS)))})
    status = ModelDeploymentStatus(versions=(entry,))
    return scale(spec or settings(), status, observed, metrics, floors={}, caps={}, now=NOW)


def decided(metrics: MetricsView, spec: ModelDeploymentSpec | None = None, **fields: Any) -> VersionStatus:
    """The version's status after it."""
    return sized(metrics, spec, **fields).status.versions[0]


def read(answers: Answers) -> MetricsView:
    return read_answers(answers, NOW, 60.0, 15.0).view("n", "m")


def changed(result: Iterable[dict[str, Any]], change: Callable[[list[Any]], list[Any]], share: float = 1.0) -> Result:
    """The series with other values; only those of the first pods where ``share`` is less than 1."""
    names = {pod(number).name for number in range(int(PODS * share))}
    return [
        item | {"values": change(item["values"])} if item["metric"].get("pod") in names else item for item in result
    ]


def without_pods(result: Iterable[dict[str, Any]], share: float) -> Result:
    names = {pod(number).name for number in range(int(PODS * share))}
    return [item for item in result if item["metric"].get("pod") not in names]


def servers(answers: Answers, change: Callable[[Result], Result]) -> Answers:
    return dataclasses.replace(answers, servers=tuple(change(list(result)) for result in answers.servers))


def nan(values: list[Any]) -> list[Any]:
    return [*values[:-1], [values[-1][0], "NaN"]]


def negative(values: list[Any]) -> list[Any]:
    return [[at, "-5"] for at, _ in values]


def old(values: list[Any]) -> list[Any]:
    return [[at - 200, value] for at, value in values]


def down(share: float) -> Result:
    return [
        {"metric": {"namespace": "n", "pod": pod(number).name}, "value": [NOW, "0"]}
        for number in range(int(PODS * share))
    ]


FAULTS: dict[str, Callable[[Answers], MetricsView]] = {
    "Prometheus down": lambda _: MetricsView(NOW, False, "no connection"),
    "no series": lambda _: read(Answers(([], [], [], []), [], [])),
    "NaN": lambda good: read(servers(good, lambda result: changed(result, nan))),
    "one pod says NaN": lambda good: read(servers(good, lambda result: changed(result, nan, 0.1))),
    "negative": lambda good: read(servers(good, lambda result: changed(result, negative))),
    "stale": lambda good: read(servers(good, lambda result: changed(result, old))),
    "half of the pods silent": lambda good: read(
        dataclasses.replace(servers(good, lambda result: changed(result, old, 0.5)), down=down(0.5))
    ),
    "half of the pods have never been scraped": lambda good: read(servers(good, lambda r: without_pods(r, 0.5))),
    "only one scrape so far": lambda good: read(servers(good, lambda r: changed(r, lambda values: values[-1:]))),
    "the GPU exporter prints blanks": lambda good: read(
        dataclasses.replace(
            good, gpus=[item | {"values": [[at, "9.22e18"] for at, _ in item["values"]]} for item in good.gpus]
        )
    ),
    "the GPU exporter is stale": lambda good: read(
        dataclasses.replace(good, gpus=[item | {"values": old(item["values"])} for item in good.gpus])
    ),
}


def test_without_a_fault_replicas_are_removed() -> None:
    assert decided(read(healthy())).replicas == 8


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_removes_nothing(name: str) -> None:
    assert decided(FAULTS[name](healthy())).replicas >= PODS


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_removes_nothing_with_strategy_threshold(name: str) -> None:
    spec = settings(strategy="Threshold", gpuUtilization={"upper": 70, "lower": 20})
    assert decided(read(healthy()), spec).replicas < PODS
    assert decided(FAULTS[name](healthy()), spec).replicas >= PODS


@pytest.mark.parametrize("name", sorted(set(FAULTS) - {"only one scrape so far"}))
def test_a_fault_removes_nothing_where_only_the_gpu_scales(name: str) -> None:
    spec = settings(qps={})
    assert decided(read(healthy()), spec).replicas < PODS
    assert decided(FAULTS[name](healthy()), spec).replicas >= PODS


def gone() -> MetricsView:
    return read(dataclasses.replace(healthy(), gpus=[]))


def busy_servers() -> Answers:
    """No exporter, but servers that say for which share of the time they executed something: a tenth."""
    good = healthy()
    busy = [series("slipway_executor_busy_seconds_total", number, lambda step: 1.5 * step) for number in range(PODS)]
    return dataclasses.replace(good, servers=(good.servers[0], good.servers[1] + busy, *good.servers[2:]), gpus=[])


SCALERS = {
    "qps": settings(),
    "threshold": settings(strategy="Threshold", gpuUtilization={"upper": 70, "lower": 20}),
    "gpu": settings(qps={}),
}


def test_where_no_gpu_exporter_ever_was_its_absence_is_no_veto() -> None:
    """Else a cluster of CPUs would never scale down; what scales by the GPU alone still needs to know it."""
    assert decided(gone()).replicas == 8
    for name in ("threshold", "gpu"):
        assert decided(gone(), SCALERS[name]).replicas == PODS
        assert decided(read(busy_servers()), SCALERS[name]).replicas < PODS


@pytest.mark.parametrize("name", SCALERS)
def test_a_gpu_exporter_that_is_gone_removes_nothing(name: str) -> None:
    before = decided(read(healthy()), SCALERS[name])
    assert before.replicas < PODS
    assert before.gpu_exported
    for lost in (gone(), read(busy_servers())):
        after = decided(lost, SCALERS[name], gpu_exported=True)
        assert after.replicas == PODS
        assert after.gpu_exported


def test_a_gpu_exporter_that_comes_back_ends_the_veto() -> None:
    assert decided(read(healthy()), gpu_exported=True).replicas == 8


def test_a_gpu_shared_with_a_neighbour_is_not_a_lost_exporter() -> None:
    good = healthy()
    shared = [
        {**item, "metric": {**item["metric"], "exported_pod": f"other-{item['metric']['gpu']}"}} for item in good.gpus
    ]
    view = read(dataclasses.replace(good, gpus=[*good.gpus, *shared]))
    assert decided(view, gpu_exported=True).replicas == 8


def test_without_a_gpu_target_a_lost_exporter_is_no_veto() -> None:
    """The way out for whoever removed the exporter for good."""
    spec = settings(gpuUtilization={"target": 0}, gpuMemory={"upper": 0})
    assert decided(gone(), spec, gpu_exported=True).replicas == 8


def test_a_counter_reset_is_neither_a_burst_nor_silence() -> None:
    def reset(values: list[Any]) -> list[Any]:
        """The server restarted two scrapes ago."""
        last = float(values[-1][1]) if values else math.nan
        return [*values[:-2], [values[-2][0], "0.0"], [values[-1][0], repr(min(150.0, last))]]

    good = healthy()
    counters = changed(good.servers[1], reset, 0.5)
    metrics = read(dataclasses.replace(good, servers=(good.servers[0], counters, *good.servers[2:])))
    arrivals = metrics.of(REVISION).arrivals
    assert 60 <= arrivals.value <= 100
    assert decided(metrics).replicas <= PODS
