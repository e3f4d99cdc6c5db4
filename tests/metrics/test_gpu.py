"""GPU metrics: attributed, averaged, refused where they mean nothing."""

import math

import pytest
from slipway.api.samples import Quality

from tests.metrics.prometheus import Series, server
from tests.metrics.test_snapshot import NOW, alive, flat, line, revision

GPU_TIMES = [NOW - 95, NOW - 65, NOW - 35, NOW - 5]


def gpu(field, value, pod="p-0", index="0", *, honoured=False, times=GPU_TIMES, **labels):
    user = {"pod": pod, "namespace": "nlp"} if honoured else {
        "exported_pod": pod, "exported_namespace": "nlp", "pod": "dcgm-exporter-x", "namespace": "gpu-operator",
    }  # fmt: skip
    identity = {"gpu": index, "UUID": f"GPU-{index}", "Hostname": "node-1", "modelName": "NVIDIA A100"}
    return Series({"__name__": field, **identity, **user, **labels}, [(at, value) for at in times])


UTIL, USED, FREE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def busy(pod, per_scrape):
    return server(pod, "slipway_executor_busy_seconds_total", line(per_scrape))


@pytest.mark.parametrize("honoured", [False, True])
async def test_both_ways_of_labelling(honoured):
    metrics = await revision(
        alive("p-0"),
        gpu(UTIL, 60.0, honoured=honoured),
        gpu(USED, 30.0, honoured=honoured),
        gpu(FREE, 10.0, honoured=honoured),
    )
    assert (metrics.gpu_source, metrics.gpu_utilization.quality) == ("dcgm", Quality.OK)
    assert metrics.gpu_utilization.value == 60.0
    assert metrics.gpu_memory.value == 75.0


async def test_several_gpus_of_a_pod_are_averaged_and_the_fullest_counts():
    metrics = await revision(
        alive("p-0"),
        *(gpu(UTIL, value, index=index) for index, value in (("0", 20.0), ("1", 80.0))),
        *(gpu(USED, value, index=index) for index, value in (("0", 10.0), ("1", 90.0))),
        *(gpu(FREE, value, index=index) for index, value in (("0", 90.0), ("1", 10.0))),
    )
    assert metrics.gpu_utilization.value == 50.0
    assert metrics.gpu_memory.value == 90.0


async def test_pods_are_averaged_not_gpus():
    metrics = await revision(
        alive("p-0"), alive("p-1"), gpu(UTIL, 90.0), gpu(UTIL, 10.0, "p-1", "1"), gpu(UTIL, 20.0, "p-1", "2")
    )
    assert metrics.gpu_utilization.value == pytest.approx((90 + 15) / 2)


async def test_mig_instances_have_engine_activity():
    metrics = await revision(
        alive("p-0"), alive("p-1"), gpu(ENGINE, 0.4, GPU_I_ID="1"), gpu(ENGINE, 0.8, "p-1", GPU_I_ID="2")
    )
    assert metrics.gpu_utilization.ok
    assert metrics.gpu_utilization.value == pytest.approx(60.0)


@pytest.mark.parametrize("value", [9.223372036854776e18, math.nan, math.inf, -1.0, 150.0])
async def test_blank_and_impossible_values_are_invalid(value):
    metrics = await revision(alive("p-0"), gpu(UTIL, value))
    assert (metrics.gpu_source, metrics.gpu_utilization.quality) == ("dcgm", Quality.INVALID)


async def test_a_blank_value_falls_back_on_engine_activity_then_on_the_executor():
    engine = await revision(alive("p-0"), gpu(UTIL, 9.2e18), gpu(ENGINE, 0.5))
    assert (engine.gpu_source, engine.gpu_utilization.value) == ("dcgm", 50.0)
    executor = await revision(alive("p-0"), gpu(UTIL, 9.2e18), busy("p-0", 3.0))
    assert (executor.gpu_source, executor.gpu_utilization.value) == ("executor-busy", pytest.approx(20.0))


async def test_blank_memory_is_invalid():
    metrics = await revision(alive("p-0"), gpu(USED, 9.2e18), gpu(FREE, 10.0))
    assert metrics.gpu_memory.quality is Quality.INVALID
    assert (await revision(alive("p-0"), gpu(USED, 0.0), gpu(FREE, 0.0))).gpu_memory.quality is Quality.INVALID


async def test_without_gpu_metrics_the_executor_stands_in():
    metrics = await revision(alive("p-0"), alive("p-1"), busy("p-0", 3.0), busy("p-1", 30.0))
    assert (metrics.gpu_source, metrics.gpu_utilization.quality) == ("executor-busy", Quality.OK)
    assert metrics.gpu_utilization.value == pytest.approx((20 + 100) / 2)
    assert metrics.gpu_memory.quality is Quality.MISSING


async def test_without_anything_it_is_missing():
    metrics = await revision(alive("p-0"))
    assert metrics.gpu_utilization.quality is Quality.MISSING


async def test_a_gpu_of_some_pods_only_is_partial():
    metrics = await revision(alive("p-0"), alive("p-1"), gpu(UTIL, 60.0), busy("p-0", 1.0), busy("p-1", 1.0))
    assert (metrics.gpu_source, metrics.gpu_utilization.quality) == ("dcgm", Quality.PARTIAL)


async def test_a_shared_gpu_speaks_for_nobody():
    metrics = await revision(
        alive("p-0"), alive("p-1"), gpu(UTIL, 90.0), gpu(UTIL, 90.0, "p-1"), busy("p-0", 3.0), busy("p-1", 3.0)
    )
    assert metrics.gpu_source == "executor-busy"
    assert metrics.gpu_utilization.value == pytest.approx(20.0)


async def test_a_gpu_whose_label_alternates_between_pods_is_shared():
    alternating = [gpu(UTIL, 90.0, "p-0", times=GPU_TIMES[::2]), gpu(UTIL, 90.0, "p-1", times=GPU_TIMES[1::2])]
    metrics = await revision(alive("p-0"), alive("p-1"), *alternating, busy("p-0", 3.0), busy("p-1", 3.0))
    assert metrics.gpu_source == "executor-busy"


async def test_a_gpu_handed_on_long_ago_belongs_to_its_user():
    metrics = await revision(alive("p-0"), gpu(UTIL, 50.0), gpu(UTIL, 90.0, "former", times=[NOW - 110]))
    assert (metrics.gpu_source, metrics.gpu_utilization.value) == ("dcgm", 50.0)


async def test_the_exporters_own_pod_is_no_user():
    nobody = Series(
        {"__name__": UTIL, "gpu": "0", "UUID": "GPU-0", "pod": "dcgm-exporter-x", "namespace": "gpu-operator"},
        flat(50.0),
    )
    metrics = await revision(alive("p-0"), nobody, busy("p-0", 3.0))
    assert metrics.gpu_source == "executor-busy"


async def test_a_gpu_that_was_idle_a_moment_ago_is_not_shared_with_the_exporter():
    identity = {"gpu": "0", "UUID": "GPU-0", "Hostname": "node-1", "instance": "10.0.0.9:9400"}
    exporter = {"pod": "dcgm-exporter-x", "namespace": "gpu-operator"}
    idle = Series({"__name__": UTIL, **identity, **exporter}, [(at, 0.0) for at in GPU_TIMES[:3]])
    used = gpu(UTIL, 60.0, times=GPU_TIMES[3:], instance="10.0.0.9:9400")
    metrics = await revision(alive("p-0"), idle, used)
    assert (metrics.gpu_source, metrics.gpu_utilization.value) == ("dcgm", 60.0)


BLANKS = [
    *(float(0x7FFFFFF0 + n) for n in range(4)),
    *(float(0x7FFFFFFFFFFFFFF0 + n) for n in range(4)),
    *(140737488355328.0 + n for n in range(4)),
]


@pytest.mark.parametrize("blank", BLANKS)
async def test_blanks_of_every_width_are_no_values(blank):
    """Not found, not supported, not permitted; a full GPU would be one replica more."""
    for field in (UTIL, ENGINE, USED, FREE):
        good = {UTIL: 50.0, USED: 30.0, FREE: 10.0} | {field: blank}
        if field == ENGINE:
            del good[UTIL]
        metrics = await revision(alive("p-0"), *(gpu(name, value) for name, value in good.items()))
        spoilt = metrics.gpu_utilization if field in (UTIL, ENGINE) else metrics.gpu_memory
        assert spoilt.quality is Quality.INVALID, field


async def test_a_share_just_above_one_is_rounding():
    metrics = await revision(alive("p-0"), gpu(ENGINE, 1.000003, GPU_I_ID="1"))
    assert (metrics.gpu_utilization.quality, metrics.gpu_utilization.value) == (Quality.OK, 100.0)


@pytest.mark.parametrize("interval", [15.0, 30.0, 60.0])
async def test_an_exporter_that_has_missed_three_scrapes_is_stale(interval):
    times = [NOW - 110 + interval * n for n in range(int(110 // interval) + 1) if NOW - 110 + interval * n <= NOW - 5]
    assert (await revision(alive("p-0"), gpu(UTIL, 10.0, times=times))).gpu_utilization.ok
    gone = [at for at in times if at < NOW - 55]
    seen = (await revision(alive("p-0"), gpu(UTIL, 10.0, times=gone))).gpu_utilization
    assert seen.quality is (Quality.STALE if interval == 15 else Quality.OK)
