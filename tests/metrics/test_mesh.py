"""Answers that proxies count for servers which do not count them well enough."""

import math

import pytest
from slipway.api.samples import Quality

from tests.metrics.prometheus import FakePrometheus, Series
from tests.metrics.test_presets import PODS
from tests.metrics.test_snapshot import NOW, TIMES, flat, line, read

STABLE, CANDIDATE = "sentiment-v1-aaaaaaaa", "sentiment-v2-bbbbbbbb"


def pod(revision: str, name: str, samples, engine: str = "triton", **labels: str) -> Series:
    own = {"slipway_dev_revision": revision, "slipway_dev_engine": engine, "pod": f"p-{revision}", "instance": revision}
    return Series({"__name__": name, **PODS, **own, **labels}, samples)


def proxy(name: str, samples, revision: str = STABLE, gateway: str = "gateway-0", **labels: str) -> Series:
    """As a gateway's Envoy counts: labels of its own pod, of the destination, and of the request."""
    scrape = {"job": "istio", "namespace": "istio-system", "pod": gateway, "instance": f"{gateway}:15020"}
    where = {"destination_workload": revision, "destination_workload_namespace": "nlp", "reporter": "source"}
    return Series({"__name__": name, **scrape, **where, **labels}, samples)


def answers(per_scrape: float, code: str = "200", **labels: str) -> Series:
    return proxy("istio_requests_total", line(per_scrape), response_code=code, response_flags="-", **labels)


async def view(*series: Series):
    return (await read(FakePrometheus(list(series)))).view("nlp", "sentiment")


async def test_errors_that_a_model_returns_are_seen_by_the_mesh_where_triton_counts_successes():
    triton = pod(STABLE, "nv_inference_request_success", line(150.0), model="sentiment")
    metrics = (await view(triton, answers(100.0), answers(50.0, "500"))).of(STABLE)
    assert metrics.error_rate.value == pytest.approx(1 / 3)
    assert {(series.pod, series.code) for series in metrics.requests} == {
        ("proxy gateway-0", "200"),
        ("proxy gateway-0", "500"),
    }
    assert metrics.arrivals.value == pytest.approx(10.0)
    assert metrics.reporting_pods == {f"p-{STABLE}"}


async def test_without_proxies_the_servers_own_counters_stand():
    triton = pod(STABLE, "nv_inference_request_success", line(150.0), model="sentiment")
    metrics = (await view(triton)).of(STABLE)
    assert metrics.error_rate.value == 0.0
    assert {series.pod for series in metrics.requests} == {f"p-{STABLE}"}


async def test_a_revision_that_nobody_has_asked_yet_was_asked_by_nobody():
    """Envoy has no series for it; that the same proxies were scraped for the other one proves that it counts 0."""
    pods = [pod(name, "nv_inference_request_success", flat(0.0)) for name in (STABLE, CANDIDATE)]
    metrics = await view(*pods, answers(100.0))
    candidate = metrics.of(CANDIDATE)
    assert candidate.requests == ()
    assert candidate.scrapes["proxy gateway-0"] == tuple(TIMES)
    assert metrics.of(STABLE).scrapes["proxy gateway-0"] == tuple(TIMES)


async def test_durations_are_in_milliseconds():
    buckets = [
        proxy("istio_request_duration_milliseconds_bucket", line(15.0 * share), le=bound, response_code="200")
        for bound, share in (("100", 0.5), ("250", 1.0), ("+Inf", 1.0))
    ]
    metrics = (await view(pod(STABLE, "up", flat(1.0)), answers(15.0), *buckets)).of(STABLE)
    assert {series.bound for series in metrics.latencies} == {0.1, 0.25, math.inf}
    assert 0.1 < metrics.latency_p99.value <= 0.25


async def test_grpc_faults_come_with_http_200():
    faults = [answers(15.0, grpc_response_status=status) for status in ("0", "3", "13", "14")]
    metrics = (await view(pod(STABLE, "up", flat(1.0)), *faults)).of(STABLE)
    assert metrics.error_rate.value == pytest.approx(0.5)


async def test_a_custom_server_without_metrics_of_its_own_is_counted_by_the_mesh():
    metrics = (await view(pod(STABLE, "up", flat(0.0), engine="custom"), answers(150.0))).of(STABLE)
    assert metrics.arrivals.value == pytest.approx(10.0)
    assert metrics.reporting_pods == frozenset()


async def test_proxies_that_two_jobs_scrape_count_once():
    twice = [answers(150.0), answers(150.0)]
    twice[1].labels["job"] = "again"
    metrics = (await view(pod(STABLE, "up", flat(1.0), engine="custom"), *twice)).of(STABLE)
    assert metrics.served.value == pytest.approx(10.0)


async def test_several_proxies_are_added_up():
    pair = [answers(150.0), answers(15.0, gateway="gateway-1"), answers(15.0, "503", gateway="gateway-1")]
    metrics = (await view(pod(STABLE, "up", flat(1.0)), *pair)).of(STABLE)
    assert metrics.served.value == pytest.approx(11.0)
    assert {series.pod for series in metrics.requests} == {"proxy gateway-0", "proxy gateway-1"}


async def test_a_proxy_that_is_down_makes_what_the_others_count_a_part_of_the_truth():
    silent = [at for at in TIMES if at < TIMES[-1] - 60]
    lost = proxy("istio_requests_total", line(150.0, 0.0, silent), gateway="gateway-1", response_code="200")
    scraped = (pod(STABLE, "up", flat(0.0), engine="custom"), answers(150.0), lost)
    down = [{"namespace": "istio-system", "pod": "gateway-1"}]
    metrics = (await read(FakePrometheus(list(scraped), down))).view("nlp", "sentiment").of(STABLE)
    assert metrics.arrivals.quality is Quality.PARTIAL
    assert metrics.arrivals.value == pytest.approx(10.0)
    assert (await view(*scraped)).of(STABLE).arrivals.quality is Quality.OK, "a proxy that was removed"


async def test_vllm_and_slipways_own_servers_are_not_asked_of_the_mesh():
    vllm = pod(STABLE, "vllm:request_success_total", line(150.0), engine="vllm", finished_reason="stop")
    fake = FakePrometheus([vllm, answers(15.0, "500")])
    metrics = (await read(fake)).view("nlp", "sentiment").of(STABLE)
    assert metrics.error_rate.value == 0.0
    assert len(fake.queries) == 8


@pytest.mark.parametrize("revisions", [1, 50, 500])
async def test_one_query_more_however_many_revisions(revisions: int):
    series = [pod(f"sentiment-v{n}-aaaaaaaa", "up", flat(1.0)) for n in range(revisions)]
    fake = FakePrometheus(series)
    assert (await read(fake)).view("nlp", "sentiment").of(
        "sentiment-v0-aaaaaaaa"
    ).arrivals.quality is not Quality.INVALID
    [mesh] = [query for query in fake.queries if "istio_requests_total|" in query]
    assert len(fake.queries) == 9
    assert len(mesh) < 4000
    assert ("sentiment-v0-aaaaaaaa" in mesh) == (revisions <= 100)


async def test_a_custom_server_that_answers_scrapes_with_metrics_of_its_own_is_counted_by_the_mesh():
    metrics = (await view(pod(STABLE, "up", flat(1.0), engine="custom"), answers(150.0))).of(STABLE)
    assert metrics.arrivals.value == pytest.approx(10.0)
    assert metrics.reporting_pods == {f"p-{STABLE}"}
    assert metrics.uncounted_pods == frozenset()


async def test_servers_may_be_scraped_more_rarely_than_the_proxies_before_them():
    """By the proxies' interval the servers' last scrape would be too old for a part of the time."""
    rare = [(NOW - 50 - 60 * n, 100.0 * (4 - n)) for n in range(3, -1, -1)]
    servers = (pod(STABLE, "nv_inference_request_success", rare), pod(STABLE, "up", [(at, 1.0) for at, _ in rare]))
    often = [answers(10.0, gateway=f"gateway-{n}") for n in range(3)]
    seen = await view(*servers, *often)
    assert seen.of(STABLE).arrivals.value == pytest.approx(100 / 60)
    assert seen.of(STABLE).arrivals.ok
    assert seen.scrape_interval == 60.0
