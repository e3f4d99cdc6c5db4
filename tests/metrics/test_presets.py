"""Metrics of Triton and vLLM, in their own names."""

import pytest
from slipway.api.counters import increases
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
    assert {series.code for series in metrics.requests} == {"200", "500", "503"}


async def test_a_request_that_its_client_gave_up_is_no_error_of_tritons():
    cancelled = foreign("nv_inference_request_failure", line(50.0), reason="CANCELED", model="bert", version="1")
    metrics = await revision(foreign("nv_inference_request_success", line(150.0), model="bert"), cancelled)
    assert metrics.error_rate.value == 0.0
    assert {series.code for series in metrics.requests} == {"200", "499"}


async def test_of_a_repository_the_model_that_clients_ask_for_counts():
    steps = [foreign("nv_inference_request_success", line(150.0), model=name) for name in ("tokens", "sentiment")]
    assert (await revision(*steps)).served.value == pytest.approx(10.0)
    assert (await revision(steps[0])).served.value == pytest.approx(10.0)


async def test_tritons_histogram_is_in_milliseconds():
    buckets = [
        foreign("nv_inference_first_response_histogram_ms_bucket", line(15.0), model="bert", le=bound)
        for bound in ("100", "500", "+Inf")
    ]
    metrics = await revision(foreign("nv_inference_request_success", line(15.0), model="bert"), *buckets)
    assert {series.bound for series in metrics.latencies} == {0.1, 0.5, float("inf")}
    assert 0.09 < metrics.latency_p99.value <= 0.1


async def test_vllms_errors_are_those_of_its_http_server():
    """The engine counts only what it finished; probes and listings are no inference."""
    metrics = await revision(
        foreign("vllm:request_success_total", line(45.0), finished_reason="stop"),
        foreign("vllm:request_success_total", line(45.0), finished_reason="abort"),
        foreign("vllm:request_success_total", line(45.0), finished_reason="error"),
        foreign("http_requests_total", line(10.0), status="5xx", handler="/v1/completions", method="POST"),
        foreign("http_requests_total", line(90.0), status="2xx", handler="/v1/completions", method="POST"),
        foreign("http_requests_total", line(90.0), status="5xx", handler="/ping", method="GET"),
    )
    assert metrics.error_rate.value == pytest.approx(0.1)
    assert metrics.arrivals.value == pytest.approx(100 / 15)


async def test_a_scrape_that_failed_proves_nothing():
    at_work = [(at, 0.0 if n % 2 else 1.0) for n, (at, _) in enumerate(flat(1.0))]
    metrics = await revision(foreign("up", at_work))
    assert metrics.scrapes == {"p-0": tuple(at for at, value in at_work if value)}
    assert (await revision(foreign("up", flat(0.0)))).scrapes == {}


async def test_series_of_one_code_stay_apart_where_targets_are_joined():
    """A renamed job: what came before the new target is put in front, each series to its own."""
    early, late = flat(0.0)[:10], flat(0.0)[10:]
    series = []
    for reason, height in (("BACKEND", 100.0), ("OTHER", 7.0)):
        for job, times in (("old", early), ("new", late)):
            found = foreign("nv_inference_request_failure", [(at, height) for at, _ in times], reason=reason)
            found.labels["job"] = job
            series.append(found)
    metrics = await revision(*series)
    assert sorted({value for counter in metrics.requests for _, value in counter.samples}) == [7.0, 100.0]
    assert all(len({value for _, value in counter.samples}) == 1 for counter in metrics.requests)
    assert len(metrics.requests) == 2


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


async def test_a_cache_by_two_names_or_of_two_engines_is_not_counted_twice():
    """Releases that renamed the metric export both names for a while."""
    metrics = await revision(
        foreign("vllm:num_requests_running", flat(1.0), engine="0"),
        foreign("vllm:kv_cache_usage_perc", flat(0.5), engine="0"),
        foreign("vllm:gpu_cache_usage_perc", flat(0.5), engine="0"),
        foreign("vllm:kv_cache_usage_perc", flat(0.6), engine="1"),
    )
    assert metrics.gpu_memory.value == pytest.approx(60.0)


async def test_a_server_that_answers_scrapes_and_counts_nothing_has_not_shown_that_nothing_came():
    metrics = await revision(foreign("up", flat(1.0)))
    assert metrics.reporting_pods == metrics.uncounted_pods == {"p-0"}
    assert metrics.arrivals.quality is Quality.MISSING
    assert metrics.arrivals.reason == "p-0 exports no metrics that are known"


async def test_a_sidecars_port_is_not_taken_for_the_server_that_stopped_counting():
    """As where one PodMonitor names both ports; the sidecar may be scraped after the server, and begin before it."""
    sidecar = [(at + 4, 1.0) for at, _ in flat(1.0)]
    first = sidecar[0][0] - 10
    scraped = foreign("up", [(first, 1.0), *sidecar], endpoint="http-envoy-prom", container="istio-proxy")
    scraped.labels["instance"] = "p-0:15090"
    own = [(at, 70_000.0 + value) for at, value in line(30.0)]
    served = foreign("vllm:request_success_total", own, finished_reason="stop", container="server")
    metrics = await revision(scraped, foreign("up", flat(1.0), container="server"), served)
    assert metrics.arrivals.value == pytest.approx(2.0)
    assert metrics.uncounted_pods == frozenset()
    [counter] = metrics.requests
    counted = sum(found.amount for found in increases(counter.samples, metrics.scrapes["p-0"], first, 15.0))
    assert counted == pytest.approx(30.0 * (len(own) - 1))
