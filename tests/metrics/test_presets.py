"""Metrics of Triton and vLLM, in their own names."""

import pytest
from slipway.api.samples import Quality

from tests.metrics.prometheus import FakePrometheus, Series
from tests.metrics.test_snapshot import REVISION, flat, line, read

PODS = {
    "namespace": "nlp",
    "slipway_dev_model_deployment": "sentiment",
    "slipway_dev_version": "v1",
    "slipway_dev_revision": REVISION,
    "job": "pods",
}


def foreign(name, samples, pod="p-0", **labels):
    return Series({"__name__": name, **PODS, "pod": pod, "instance": f"{pod}:8002", **labels}, samples)


async def revision(*series):
    return (await read(FakePrometheus(list(series)))).view("nlp", "sentiment").of(REVISION)


def triton(pod="p-0"):
    """Triton labels series with its own model and version, and failures with a reason."""
    own = {"model": "bert", "version": "1"}
    return (
        foreign("nv_inference_request_success", line(150.0), pod, **own),
        foreign("nv_inference_request_failure", line(15.0), pod, reason="REJECTED", **own),
        foreign("nv_inference_request_failure", line(15.0), pod, reason="BACKEND", **own),
        foreign("nv_inference_pending_request_count", flat(4.0), pod, **own),
        foreign("nv_inference_queue_duration_us", line(3_000_000.0), pod, **own),
    )


async def test_triton():
    metrics = await revision(*triton())
    assert metrics.arrivals.value == pytest.approx(12.0)
    assert metrics.served.value == pytest.approx(10.0)
    assert metrics.error_rate.value == pytest.approx(30 / 180)
    assert metrics.queue_depth.value == 4.0
    assert metrics.queue_time.value == pytest.approx(0.02)
    assert {series.code for series in metrics.requests} == {"200", "500"}


@pytest.mark.parametrize("colon", [":", "_"])
async def test_vllm_in_both_spellings(colon):
    own = {"model_name": "llama", "engine": "0"}

    def vllm(name, samples, **labels):
        return foreign(f"vllm{colon}{name}", samples, **own, **labels)

    metrics = await revision(
        vllm("request_success_total", line(30.0), finished_reason="stop"),
        vllm("request_success_total", line(15.0), finished_reason="length"),
        vllm("num_requests_running", flat(6.0)),
        vllm("num_requests_waiting", flat(3.0)),
        vllm("request_queue_time_seconds_sum", line(9.0)),
        vllm("request_queue_time_seconds_count", line(45.0)),
        vllm("kv_cache_usage_perc", flat(0.93)),
        *(vllm("e2e_request_latency_seconds_bucket", line(45.0), le=bound) for bound in ("1.0", "+Inf")),
    )
    assert metrics.arrivals.value == pytest.approx(3.0)
    assert metrics.in_flight.value == 9.0
    assert metrics.queue_depth.value == 3.0
    assert metrics.queue_time.value == pytest.approx(0.2)
    assert metrics.gpu_memory.value == pytest.approx(93.0)
    assert metrics.latency_p99.ok
    assert {series.bound for series in metrics.latencies} == {1.0, float("inf")}


async def test_the_cache_counts_even_where_the_gpus_memory_is_full():
    full = {"Hostname": "node-1", "gpu": "0", "UUID": "GPU-0", "exported_pod": "p-0", "exported_namespace": "nlp"}
    metrics = await revision(
        foreign("vllm:num_requests_running", flat(1.0)),
        foreign("vllm:kv_cache_usage_perc", flat(0.2)),
        Series({"__name__": "DCGM_FI_DEV_FB_USED", **full}, flat(75_000.0)),
        Series({"__name__": "DCGM_FI_DEV_FB_FREE", **full}, flat(1_000.0)),
    )
    assert metrics.gpu_memory.value == pytest.approx(20.0)


async def test_several_pods_and_a_stale_one():
    metrics = await revision(*triton("p-0"), *triton("p-1"))
    assert metrics.arrivals.value == pytest.approx(24.0)
    assert metrics.reporting_pods == {"p-0", "p-1"}


async def test_without_the_labels_of_pods_nobody_is_meant():
    series = [Series({k: v for k, v in item.labels.items() if "slipway" not in k}, item.samples) for item in triton()]
    snapshot = await read(FakePrometheus(series))
    assert snapshot.view("nlp", "sentiment").of(REVISION).arrivals.quality is Quality.MISSING
