"""Typed samples: what a value is, how far it can be trusted, and why."""

import math

import pytest
from slipway.api.counters import increases
from slipway.api.samples import Quality, ShadowPair, ShadowResult
from slipway.metrics import PrometheusSource

from tests.metrics.prometheus import MODEL, FakePrometheus, Series, server, serving

NOW = 1000.0
TIMES = [NOW - 5 - 15 * n for n in range(18, -1, -1)]
REVISION = MODEL["revision"]


def line(per_scrape, begin=0.0, times=TIMES):
    return [(at, begin + per_scrape * n) for n, at in enumerate(times)]


def flat(value, times=TIMES):
    return [(at, value) for at in times]


def alive(pod, times=TIMES, value=0.0):
    return server(pod, "slipway_requests_in_flight", flat(value, times))


def requests(pod, per_scrape, code="200", times=TIMES, **labels):
    return server(pod, "slipway_requests_total", line(per_scrape, times=times), code=code, shadow="false", **labels)


async def read(fake, now=NOW, **options):
    with serving(fake) as url:
        source = PrometheusSource(url, **options)
        try:
            return await source.snapshot(now)
        finally:
            source.close()


async def revision(*series, down=(), **options):
    snapshot = await read(FakePrometheus(list(series), [{"namespace": "nlp", "pod": pod} for pod in down]), **options)
    assert snapshot.available, snapshot.error
    return snapshot.view("nlp", "sentiment").of(REVISION)


async def test_arrivals_are_exact_increases_over_the_time_between_scrapes():
    metrics = await revision(alive("p-0"), requests("p-0", 30.0), requests("p-0", 15.0, code="503"))
    assert metrics.arrivals.ok
    assert metrics.arrivals.value == pytest.approx(3.0)
    assert metrics.arrivals.at == NOW - 5
    assert metrics.error_rate.value == pytest.approx(1 / 3)
    assert metrics.reporting_pods == {"p-0"}


async def test_labels_of_pods_do_not_hide_the_servers_own():
    """As where scraping maps all labels of pods, and podTemplate has labels of the same names."""
    taken = {"model": "ours", "version": "stable", "revision": "r5", "code": "blue"}
    own = {f"exported_{name}": value for name, value in MODEL.items() if name in taken}

    def renamed(series, **more):
        labels = {**series.labels, **{name: taken[name] for name in ("model", "version", "revision")}, **own, **more}
        return Series(labels, series.samples)

    metrics = await revision(
        renamed(alive("p-0")),
        renamed(requests("p-0", 30.0)),
        renamed(requests("p-0", 15.0), code="blue", exported_code="503"),
    )
    assert metrics.arrivals.value == pytest.approx(3.0)
    assert metrics.error_rate.value == pytest.approx(1 / 3)


async def test_pods_are_added_up():
    metrics = await revision(
        alive("p-0", value=2.0), requests("p-0", 30.0), alive("p-1", value=3.0), requests("p-1", 15.0)
    )
    assert metrics.arrivals.value == pytest.approx(3.0)
    assert metrics.in_flight.value == 5.0


async def test_each_pods_load_is_known_while_its_scrapes_are_fresh():
    old = [at - 120 for at in TIMES]
    waiting = server("p-0", "slipway_queue_depth", flat(4.0))
    metrics = await revision(
        *(alive("p-0", value=5.0), waiting, alive("p-1"), alive("old", old, 7.0), requests("silent", 15.0)),
        alive("broken", value=math.nan),
    )
    assert metrics.pod_loads == {"p-0": 9.0, "p-1": 0.0}
    assert metrics.reporting_pods == {"p-0", "p-1", "silent", "broken"}


async def test_zero_is_a_value_where_the_server_is_alive():
    metrics = await revision(alive("p-0"))
    assert (metrics.arrivals.quality, metrics.arrivals.value) == (Quality.OK, 0.0)
    assert metrics.error_rate.quality is Quality.MISSING


async def test_nothing_known_is_missing_and_never_zero():
    metrics = await revision()
    assert metrics.arrivals.quality is Quality.MISSING
    assert metrics.reporting_pods == frozenset()


async def test_the_first_requests_of_a_code_count():
    late = server("p-0", "slipway_requests_total", [(NOW - 5, 6.0)], code="500", shadow="false")
    metrics = await revision(alive("p-0"), requests("p-0", 15.0), late)
    assert metrics.error_rate.value == pytest.approx(6 / (4 * 15 + 6))


async def test_a_restart_is_no_negative_rate():
    values = [(at, 100.0 + 15 * n if n < 16 else 15.0 * (n - 15)) for n, at in enumerate(TIMES)]
    restarted = server("p-0", "slipway_requests_total", values, code="200", shadow="false")
    assert (await revision(alive("p-0"), restarted)).arrivals.value == pytest.approx(1.0)


async def test_a_pod_scraped_once_has_no_rate_yet():
    metrics = await revision(alive("p-0"), requests("p-0", 15.0), alive("p-1", [NOW - 3]))
    assert metrics.arrivals.quality is Quality.PARTIAL
    assert metrics.arrivals.value == pytest.approx(1.0)
    assert "p-1" in metrics.arrivals.reason
    alone = await revision(alive("p-1", [NOW - 3]))
    assert alone.arrivals.quality is Quality.MISSING


OLD = [at - 60 for at in TIMES]


async def test_old_scrapes_are_stale():
    metrics = await revision(alive("p-0", OLD), requests("p-0", 15.0, times=OLD))
    assert metrics.arrivals.quality is Quality.STALE
    assert metrics.in_flight.quality is Quality.STALE
    assert metrics.requests, "evidence stays readable"


async def test_a_pod_that_is_gone_is_forgotten():
    metrics = await revision(alive("p-0"), requests("p-0", 15.0), alive("gone", OLD), requests("gone", 15.0, times=OLD))
    assert metrics.arrivals.ok
    assert metrics.arrivals.value == pytest.approx(1.0)
    assert metrics.reporting_pods == {"p-0"}


async def test_a_pod_that_is_down_makes_sums_partial():
    metrics = await revision(
        alive("p-0"), requests("p-0", 15.0), alive("p-1", OLD), requests("p-1", 15.0, times=OLD), down=["p-1"]
    )
    for sample in (metrics.arrivals, metrics.in_flight, metrics.error_rate):
        assert sample.quality is Quality.PARTIAL
        assert "p-1" in sample.reason


@pytest.mark.parametrize("value", [math.nan, math.inf])
async def test_no_number_is_invalid(value):
    broken = server("p-0", "slipway_requests_total", [*line(1.0)[:-1], (NOW - 5, value)], code="200", shadow="false")
    metrics = await revision(alive("p-0", value=value), broken)
    assert metrics.in_flight.quality is Quality.INVALID
    assert metrics.arrivals.quality is Quality.INVALID
    assert all(math.isfinite(sample) for series in metrics.requests for _, sample in series.samples)


async def test_two_scrapers_do_not_double_the_requests():
    offset = [at - 4 for at in TIMES]
    other = {"job": "other"}
    metrics = await revision(
        alive("p-0"),
        requests("p-0", 15.0),
        server("p-0", "slipway_requests_in_flight", flat(0.0, offset), **other),
        requests("p-0", 15.0, times=offset, **other),
    )
    assert metrics.arrivals.value == pytest.approx(1.0)
    assert len(metrics.requests) == 1


async def test_a_renamed_job_is_no_new_pod():
    early, late = TIMES[:10], TIMES[10:]
    metrics = await revision(
        server("p-0", "slipway_requests_in_flight", flat(0.0, early), job="old"),
        server("p-0", "slipway_requests_total", line(15.0, 1000.0, early), code="200", shadow="false", job="old"),
        server("p-0", "slipway_requests_in_flight", flat(0.0, late), job="new"),
        server("p-0", "slipway_requests_total", line(15.0, 1150.0, late), code="200", shadow="false", job="new"),
    )
    assert metrics.arrivals.value == pytest.approx(1.0)
    assert len(metrics.requests[0].samples) == len(TIMES)


async def test_shadow_requests_are_not_served_ones():
    shadow = server("p-0", "slipway_requests_total", line(150.0), code="200", shadow="true")
    metrics = await revision(alive("p-0"), requests("p-0", 15.0), shadow)
    assert metrics.arrivals.value == pytest.approx(1.0)


def buckets(pod, counts):
    name = "slipway_request_duration_seconds_bucket"
    return [server(pod, name, line(per_scrape), le=bound, shadow="false") for bound, per_scrape in counts.items()]


async def test_comparisons_with_a_candidate_are_evidence():
    labels = {"candidate": "sentiment-v2-bbbbbbbb", "pair": "candidate", "result": "differ"}
    metrics = await revision(
        alive("p-0"),
        server("p-0", "slipway_shadow_comparisons_total", line(2), **labels),
        server("p-0", "slipway_shadow_comparisons_total", line(2), **labels | {"result": "shrug"}),
    )
    (series,) = metrics.shadows
    assert (series.pod, series.candidate) == ("p-0", "sentiment-v2-bbbbbbbb")
    assert (series.pair, series.result) == (ShadowPair.CANDIDATE, ShadowResult.DIFFER)
    assert series.samples[-1][1] > series.samples[0][1]


async def test_the_99th_percentile_is_interpolated_over_all_pods():
    metrics = await revision(
        alive("p-0"),
        alive("p-1"),
        *buckets("p-0", {"0.1": 45.0, "0.2": 50.0, "+Inf": 50.0}),
        *buckets("p-1", {"0.1": 45.0, "0.2": 50.0, "+Inf": 50.0}),
    )
    assert metrics.latency_p99.value == pytest.approx(0.19)
    assert {series.bound for series in metrics.latencies} == {0.1, 0.2, math.inf}


async def test_beyond_the_last_bound_the_percentile_is_that_bound():
    metrics = await revision(alive("p-0"), *buckets("p-0", {"0.1": 10.0, "+Inf": 50.0}))
    assert metrics.latency_p99.value == 0.1


async def test_no_requests_have_no_percentile():
    metrics = await revision(alive("p-0"), *buckets("p-0", {"0.1": 0.0, "+Inf": 0.0}))
    assert metrics.latency_p99.quality is Quality.MISSING


async def test_queue():
    metrics = await revision(
        alive("p-0"),
        server("p-0", "slipway_queue_duration_seconds_sum", line(3.0)),
        server("p-0", "slipway_queue_duration_seconds_count", line(30.0)),
        server("p-0", "slipway_queue_depth", flat(7.0)),
    )
    assert metrics.queue_time.value == pytest.approx(0.1)
    assert metrics.queue_depth.value == 7.0


async def test_an_idle_queue_waits_zero_seconds_and_none_is_missing():
    idle = await revision(
        alive("p-0"),
        server("p-0", "slipway_queue_duration_seconds_sum", flat(3.0)),
        server("p-0", "slipway_queue_duration_seconds_count", flat(30.0)),
    )
    assert (idle.queue_time.quality, idle.queue_time.value) == (Quality.OK, 0.0)
    assert (await revision(alive("p-0"))).queue_time.quality is Quality.MISSING


async def test_revisions_and_models_are_kept_apart():
    other = Series({**requests("q-0", 0.0).labels, "revision": "sentiment-v2-bbbbbbbb"}, line(30.0))
    elsewhere = Series({**requests("p-0", 0.0).labels, "namespace": "vision"}, line(60.0))
    snapshot = await read(FakePrometheus([alive("p-0"), requests("p-0", 15.0), other, elsewhere]))
    view = snapshot.view("nlp", "sentiment")
    assert view.of(REVISION).arrivals.value == pytest.approx(1.0)
    assert view.of("sentiment-v2-bbbbbbbb").arrivals.value == pytest.approx(2.0)
    assert snapshot.view("vision", "sentiment").of(REVISION).arrivals.value == pytest.approx(4.0)
    unknown = snapshot.view("nlp", "other")
    assert (unknown.available, unknown.revisions) == (True, {})


async def test_series_without_pod_or_namespace_belong_to_nobody():
    labels = {name: value for name, value in requests("p-0", 1.0).labels.items() if name != "namespace"}
    snapshot = await read(FakePrometheus([Series(labels, line(1.0))]))
    assert snapshot.available
    assert snapshot.views == {}


@pytest.mark.parametrize(("distance", "seen"), [(15.0, 15.0), (1.02, 1.0), (0.5, 0.5)])
async def test_the_scrape_interval_is_seen(distance, seen):
    times = [NOW - distance * n for n in range(20, -1, -1)]
    snapshot = await read(FakePrometheus([alive("p-0", times)]))
    assert snapshot.view("nlp", "sentiment").scrape_interval == seen


@pytest.mark.parametrize("objects", [1, 100, 1000])
async def test_the_number_of_queries_does_not_grow_with_objects(objects):
    series = [Series({**alive("p-0").labels, "model": f"m{n}"}, flat(0.0)) for n in range(objects)]
    fake = FakePrometheus(series)
    snapshot = await read(fake)
    assert len(snapshot.views) == objects
    assert len(fake.queries) == 8


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -5.0])
@pytest.mark.parametrize("spoilt", [range(15, 17), range(17), range(2, 18)])
async def test_a_counter_that_can_be_read_again_has_not_counted_all_of_it_just_now(nonsense, spoilt):
    """Neither for demand nor as evidence: errors of last week are none of this window."""
    values = [(at, nonsense if n in spoilt else 9000.0 + 15 * n) for n, at in enumerate(TIMES)]
    metrics = await revision(
        *(alive("p-0"), alive("p-1"), requests("p-1", 15.0)),
        server("p-0", "slipway_requests_total", values, code="500", shadow="false"),
    )
    assert metrics.arrivals.value < 10
    for counter in metrics.requests:
        scrapes = metrics.scrapes[counter.pod]
        assert sum(increase.amount for increase in increases(counter.samples, scrapes, TIMES[0], 15.0)) < 300


async def test_a_counter_that_its_pod_exports_no_more_is_old_and_not_at_rest():
    early = TIMES[:-8]
    gone = [
        requests("p-0", 15.0, times=early),
        server("p-0", "slipway_queue_duration_seconds_count", line(15.0, 0, early)),
    ]
    metrics = await revision(alive("p-0"), *gone)
    assert (metrics.arrivals.quality, metrics.queue_time.quality) == (Quality.STALE, Quality.STALE)
    assert metrics.reporting_pods == metrics.uncounted_pods == {"p-0"}


@pytest.mark.parametrize("gap", [range(15, 17), range(4, 9), range(3, 18)])
async def test_counters_that_are_back_have_not_counted_everything_just_now(gap):
    """Dropped on the way for a while, all codes of them, while the pod was scraped."""

    def kept(samples):
        return [sample for n, sample in enumerate(samples) if n not in gap]

    def counter(name, begin, **labels):
        return server("p-0", name, kept(line(15.0, begin)), **labels)

    metrics = await revision(
        alive("p-0"),
        counter("slipway_requests_total", 9000.0, code="200", shadow="false"),
        counter("slipway_requests_total", 400.0, code="500", shadow="false"),
        counter("slipway_request_duration_seconds_bucket", 9000.0, le="0.1", shadow="false"),
    )
    assert metrics.arrivals.value == pytest.approx(2.0, abs=0.1)
    for counted in (*metrics.requests, *metrics.latencies):
        found = increases(counted.samples, metrics.scrapes["p-0"], TIMES[0], 15.0)
        assert sum(increase.amount for increase in found) == pytest.approx(15.0 * (len(TIMES) - 1))


async def test_a_process_that_began_anew_within_the_gap_has():
    values = [(at, 9000.0 if n < 12 else 15.0 * (n - 14)) for n, at in enumerate(TIMES) if n not in range(12, 15)]
    restarted = server("p-0", "slipway_requests_total", values, code="200", shadow="false")
    [counter] = (await revision(alive("p-0"), restarted)).requests
    found = increases(counter.samples, tuple(TIMES), TIMES[0], 15.0)
    assert sum(increase.amount for increase in found) == pytest.approx(15.0 * (len(TIMES) - 1 - 14))


async def test_what_the_runtime_counted_while_its_counters_were_dropped_has_not_come_just_now():
    """It exports them at 0 from its start: the first that is seen of them is where they were all the time."""

    def late(name, begin, count=3, **labels):
        return server("p-0", name, line(15.0, begin)[-count:], **labels)

    metrics = await revision(
        *(alive("p-0"), server("p-0", "slipway_model_ready", flat(1.0))),
        late("slipway_requests_total", 9000.0, code="200", shadow="false"),
        late("slipway_requests_total", 0.0, count=2, code="418", shadow="false"),
        late("slipway_request_duration_seconds_bucket", 9000.0, le="0.1", shadow="false"),
    )
    assert metrics.arrivals.value < 10
    by_code = {counted.code: counted for counted in metrics.requests}
    scrapes = metrics.scrapes["p-0"]

    def gained(counted):
        return sum(found.amount for found in increases(counted.samples, scrapes, TIMES[0], 15.0))

    assert gained(by_code["200"]) == gained(metrics.latencies[0]) == pytest.approx(30.0)
    assert gained(by_code["418"]) == pytest.approx(15.0 * 18), "a code appears with its first request"


@pytest.mark.parametrize("ahead", [4.0, -4.0])
async def test_two_replicas_of_prometheus_that_answer_in_turn_count_nothing_twice(ahead):
    """As behind a Service without affinity, where a connection ends between two queries: each has its own scrapes."""
    others = [at - ahead for at in TIMES]
    own = (alive("p-0", others), server("p-0", "slipway_model_ready", flat(1.0, others)))
    counted = server("p-0", "slipway_requests_total", line(15.0, 9000.0), code="200", shadow="false")
    metrics = await revision(*own, counted)
    assert metrics.arrivals.value == pytest.approx(1.0, abs=0.2)
    [series] = metrics.requests
    found = increases(series.samples, metrics.scrapes["p-0"], TIMES[0] - 4, 15.0)
    assert sum(increase.amount for increase in found) == pytest.approx(15.0 * (len(TIMES) - 1))
