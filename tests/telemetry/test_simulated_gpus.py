"""The arithmetic behind the simulated GPUs, and what is exported."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from e2e.sandbox.telemetry.gpus import (
    BusySample,
    GpuHolder,
    GpuReading,
    ReadingsCollector,
    allocate,
    busy_seconds,
    utilization,
)

A, B, C = (GpuHolder("nlp", name, "server") for name in "abc")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BusySample(10, 5.0, "executor"), BusySample(12, 6.0, "executor"), 50.0),
        (BusySample(10, 5.0, "executor"), BusySample(12, 5.0, "executor"), 0.0),
        (BusySample(10, 5.0, "executor"), BusySample(11, 7.0, "executor"), 100.0),
        (None, BusySample(11, 7.0, "executor"), None),
        (BusySample(10, 5.0, "executor"), BusySample(11, 0.1, "executor"), None),
        (BusySample(10, 5.0, "cpu"), BusySample(11, 5.5, "executor"), None),
        (BusySample(10, 5.0, "cpu"), BusySample(10, 5.5, "cpu"), None),
    ],
)
def test_utilization(before: BusySample | None, after: BusySample, expected: float | None) -> None:
    assert utilization(before, after) == expected


def test_busy_seconds_are_those_of_all_models() -> None:
    text = """# TYPE slipway_executor_busy_seconds_total counter
slipway_executor_busy_seconds_total{model="a",version="v1"} 1.5
slipway_executor_busy_seconds_total{model="b",version="v1"} 2e1
slipway_executor_busy_seconds_total_other 7
"""
    assert busy_seconds(text) == 21.5
    assert busy_seconds("slipway_executor_busy_seconds_total 3") == 3.0
    assert busy_seconds("process_cpu_seconds_total 3") is None


def test_gpus_go_to_the_lowest_free_number_and_stay() -> None:
    first = allocate(4, [(A, 1), (B, 2)], {})
    assert first == {A: (0,), B: (1, 2)}
    assert allocate(4, [(B, 2), (C, 2)], first) == {B: (1, 2), C: (0, 3)}


def test_a_newcomer_gets_nothing_of_what_others_keep() -> None:
    assert allocate(2, [(C, 1), (A, 1)], {A: (0,)}) == {A: (0,), C: (1,)}
    assert allocate(1, [(A, 1), (B, 1)], {A: (0,), B: (0,)}) == {A: (0,), B: ()}


def test_export_has_the_exporters_names_and_says_that_it_is_simulated() -> None:
    collector = ReadingsCollector(memory_mib=1000)
    collector.readings = (
        GpuReading("node-0", 0, "GPU-simulated-0", A, 42.0, 300.0),
        GpuReading("node-0", 1, "GPU-simulated-1"),
    )
    registry = CollectorRegistry()
    registry.register(collector)
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert set(families) == {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
    assert all("simulated" in family.documentation for family in families.values())
    busy, idle = families["DCGM_FI_DEV_GPU_UTIL"].samples
    assert busy.value == 42.0
    assert busy.labels == {
        "gpu": "0",
        "UUID": "GPU-simulated-0",
        "device": "nvidia0",
        "modelName": "Simulated GPU",
        "Hostname": "node-0",
        "container": "server",
        "namespace": "nlp",
        "pod": "a",
    }
    assert (idle.value, idle.labels["pod"]) == (0.0, "")
    used, free = families["DCGM_FI_DEV_FB_USED"], families["DCGM_FI_DEV_FB_FREE"]
    assert [sample.value for sample in used.samples] == [300.0, 0.0]
    assert [sample.value for sample in free.samples] == [700.0, 1000.0]
