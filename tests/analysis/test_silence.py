"""Whether a revision still gets requests, from raw scrapes."""

import pytest
from slipway.analysis import still_asked
from slipway.api.samples import CounterSeries, MetricsView, RevisionMetrics

NOW = 1000.0


def view(*values: float, pod: str = "a", scrapes: tuple[float, ...] = (), available: bool = True) -> MetricsView:
    """Counts of one pod at the scrapes, which are 15 s apart and end at 1000 s; the newest value last."""
    times = scrapes or tuple(NOW - 15 * age for age in reversed(range(len(values))))
    counted = CounterSeries(pod, "200", tuple(zip(times, values, strict=False)))
    metrics = RevisionMetrics("r", scrapes={pod: times}, requests=(counted,) if values else ())
    return MetricsView(at=NOW, available=available, scrape_interval=15.0, revisions={"r": metrics})


@pytest.mark.parametrize(
    ("seen", "since", "asked"),
    [
        (view(5, 9, 9), 980.0, False),
        (view(5, 5, 9), 980.0, True),
        (view(5, 9, 9), 990.0, True),  # no interval lies behind that moment yet
        (view(5, 9, 9, available=False), 980.0, False),
        (view(scrapes=(970.0, 985.0, 1000.0)), 980.0, False),  # a counter that has never counted
        (view(9, 9, 2), 980.0, True),  # the process began anew, and has answered two
        (view(5, 9, scrapes=(500.0, 515.0)), 980.0, False),  # a pod that is scraped no more tells nothing
        (MetricsView(at=NOW, available=True), 980.0, False),
    ],
)
def test_the_newest_interval_tells(seen: MetricsView, since: float, asked: bool) -> None:
    assert still_asked(seen, "r", since) is asked


def test_one_pod_that_is_asked_is_enough() -> None:
    quiet, busy = view(3, 3, 3).of("r"), view(1, 1, 2, pod="b").of("r")
    both = RevisionMetrics("r", scrapes={**quiet.scrapes, **busy.scrapes}, requests=(*quiet.requests, *busy.requests))
    assert still_asked(MetricsView(at=NOW, available=True, scrape_interval=15.0, revisions={"r": both}), "r", 980.0)


def test_what_the_mesh_counts_is_enough() -> None:
    """Proxies stand for pods where the mesh counts for a server; a pod that counts nothing itself is quiet."""
    seen = view(1, 1, 2, pod="proxy gateway").of("r")
    silent = RevisionMetrics("r", scrapes={"a": (970.0, 985.0, 1000.0), **seen.scrapes}, requests=seen.requests)
    assert still_asked(MetricsView(at=NOW, available=True, scrape_interval=15.0, revisions={"r": silent}), "r", 980.0)
