"""Windows: on a grid, closed, counted once, exact."""

import pytest
from slipway.analysis.windows import (
    Source,
    Span,
    closed_windows,
    error_series,
    latency_bound,
    latency_series,
    window_length,
)
from slipway.api.samples import LatencySeries, MetricsView, RevisionMetrics

from tests.analysis.traffic import CANDIDATE, STABLE, Pod, view


def windows(metrics, counting_from, counted=None, interval=30.0, source=error_series):
    span = Span.of(interval, metrics, counting_from, counted, metrics.at)
    return closed_windows(metrics, arms(source), span)


def arms(source):
    return Source(CANDIDATE, source), Source(STABLE, source)


def pods(error_rate: float = 0.1) -> tuple[list[Pod], list[Pod]]:
    return [Pod.steady("c-0", 4, error_rate, 1)], [Pod.steady("s-0", 40, error_rate, 2, begin=8.0)]


def test_windows_lie_on_the_grid_and_are_closed_for_two_scrape_intervals():
    found = windows(view(*pods(), now=200.0), counting_from=61.0)
    assert [window.end for window in found] == [120_000, 150_000]


def test_counts_are_exact():
    candidate, stable = pods()
    found = windows(view(candidate, stable, now=200.0), counting_from=61.0)
    before = next(entry for entry in candidate[0].history if entry[0] == 78.0)
    after = next(entry for entry in candidate[0].history if entry[0] == 108.0)
    counts = found[0].counts
    # Scrapes at 93 and 108 lie in the window (90, 120]; the one at 78 is their baseline.
    assert (counts.candidate, counts.candidate_bad) == (after[1] - before[1], after[2] - before[2])
    assert counts.stable == 80


def test_no_request_from_before_the_first_weight_counts():
    # The window (90, 120] begins where counting does; the increase scraped at 93 began at 78.
    first = windows(view(*pods(), now=200.0), counting_from=90.0)[0]
    assert first.counts.candidate == 4
    # 98 to 113 only; what was scraped at 98 began at 83.
    assert first.counts.stable == 40


def test_a_window_is_counted_once():
    metrics = view(*pods(), now=200.0)
    assert [window.end for window in windows(metrics, 61.0, counted=120.0)] == [150_000]
    assert windows(metrics, 61.0, counted=150.0) == []


def test_late_scrapes_of_a_counted_window_are_dropped():
    candidate, stable = pods()
    early = [Pod("c-0", [entry for entry in candidate[0].history if not 90 < entry[0] <= 120])]
    first = windows(view(early, stable, now=200.0), 61.0)
    assert first[0].counts.candidate == 0
    later = windows(view(candidate, stable, now=200.0), 61.0, counted=120.0)
    assert [window.end for window in later] == [150_000]
    assert later[0].counts.candidate == 8


def test_a_snapshot_from_the_past_opens_nothing():
    metrics = view(*pods(), now=200.0)
    assert closed_windows(metrics, arms(error_series), Span.of(30.0, metrics, 150.0, 300.0, 1e6)) == []


def test_work_is_bounded_by_the_view_however_long_ago_counting_began():
    found = windows(view(*pods(), now=1500.0), counting_from=0.0)
    assert len(found) <= 11


@pytest.mark.parametrize(
    ("interval", "scrape", "length"),
    [(30.0, 15.0, 30_000), (30.0, 20.0, 30_000), (5.0, 15.0, 25_000), (600.0, 15.0, 120_000), (90.0, 1.0, 90_000),
     (0.5, 1.0, 1_500), (30.0, 60.0, 90_000)],
)  # fmt: skip
def test_windows_are_long_enough_for_a_scrape_of_every_pod(interval, scrape, length):
    assert window_length(interval, scrape) == length


def test_slow_requests_are_those_above_the_bound():
    candidate = [Pod.steady("c-0", 20, 0.0, 1, slow_rate=0.5)]
    metrics = view(candidate, [Pod.steady("s-0", 20, 0.0, 2)], now=200.0)
    found = windows(metrics, 61.0, source=lambda revision: latency_series(revision, 0.3))
    before = next(entry for entry in candidate[0].history if entry[0] == 78.0)
    after = next(entry for entry in candidate[0].history if entry[0] == 108.0)
    assert (found[0].counts.candidate, found[0].counts.candidate_bad) == (40, after[3] - before[3])


def histogram(revision, bounds):
    series = tuple(LatencySeries(f"{revision}-pod", bound, ((1.0, 0.0),)) for bound in (*bounds, float("inf")))
    return RevisionMetrics(revision, latencies=series)


@pytest.mark.parametrize(
    ("candidate", "stable", "threshold", "bound"),
    [
        ([0.1, 0.3], [0.1, 0.3], 0.3, 0.3),
        ([0.1, 0.3, 0.5], [0.1, 0.3, 0.5], 0.2, 0.3),
        ([0.1, 0.3], [0.1, 0.5], 0.2, None),
        ([0.1, 0.2, 0.5], [0.1, 0.5], 0.2, 0.5),
        ([0.1], [0.1], 0.2, None),
    ],
)
def test_thresholds_go_up_to_a_bound_that_all_have(candidate, stable, threshold, bound):
    revisions = {CANDIDATE: histogram(CANDIDATE, candidate), STABLE: histogram(STABLE, stable)}
    assert latency_bound(MetricsView(revisions=revisions), (CANDIDATE, STABLE), threshold) == bound


def test_without_histograms_there_is_no_bound():
    assert latency_bound(MetricsView(), (CANDIDATE, STABLE), 0.3) is None
