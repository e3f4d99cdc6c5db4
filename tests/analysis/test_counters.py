"""Exact increases of counters: what was counted once is counted once."""

from hypothesis import given
from hypothesis import strategies as st
from slipway.api.counters import Increase, covered_from, increases, scrape_times
from slipway.api.samples import CounterSeries, MetricsView, RevisionMetrics


def amounts(samples, scrapes, covered=0.0, interval=15.0):
    return [increase.amount for increase in increases(samples, scrapes, covered, interval)]


def test_growth_between_scrapes_is_exact():
    assert increases([(15, 4.0), (30, 9.0)], [0, 15, 30], 0, 15) == (Increase(0, 15, 4.0), Increase(15, 30, 5.0))


def test_a_code_seen_for_the_first_time_was_zero_at_the_scrape_before():
    assert increases([(45, 3.0)], [15, 30, 45], 0, 15) == (Increase(30, 45, 3.0),)


def test_a_smaller_value_is_a_restart():
    assert amounts([(15, 100.0), (30, 7.0)], [15, 30], covered=15) == [7.0]


def test_a_restart_that_soon_overtakes_the_old_value_is_seen_by_scrapes_without_the_counter():
    assert amounts([(15, 5.0), (60, 8.0)], [15, 30, 45, 60], covered=15) == [8.0]


def test_a_gap_in_scraping_is_no_restart():
    assert amounts([(15, 5.0), (60, 8.0)], [15, 60], covered=15) == [3.0]


def test_a_pod_that_was_not_there_before_starts_at_zero():
    assert increases([(100, 6.0)], [100], 10, 15) == (Increase(85, 100, 6.0),)


def test_the_first_scrape_of_all_is_a_baseline():
    assert amounts([(100, 5000.0), (115, 5010.0)], [100, 115], covered=95) == [10.0]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=30), st.integers(1, 28))
def test_cutting_the_scrapes_anywhere_neither_loses_nor_doubles_a_request(steps, cut):
    cut = min(cut, len(steps) - 1)
    values, total = [], 0
    for place, step in enumerate(steps):
        total += step
        values.append((15.0 * place, float(total)))
    scrapes = [at for at, _ in values]
    whole = sum(amounts(values, scrapes, covered=0.0))
    early = sum(amounts(values[:cut], scrapes[:cut], covered=0.0))
    late = sum(amounts(values[cut - 1 :], scrapes[cut - 1 :], covered=0.0, interval=1e9))
    assert whole == early + late


def test_scrape_times_fall_back_on_the_counters():
    metrics = RevisionMetrics("r", scrapes={"a": (1.0, 2.0)}, requests=(CounterSeries("b", "200", ((3.0, 1.0),)),))
    assert scrape_times(metrics) == {"a": (1.0, 2.0), "b": (3.0,)}
    assert covered_from(MetricsView(revisions={"r": metrics})) == 1.0
    assert covered_from(MetricsView()) == float("inf")
