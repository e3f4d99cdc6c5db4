"""Counters of comparisons for tests."""

from slipway.api.samples import MetricsView, RevisionMetrics, ShadowPair, ShadowResult, ShadowSeries

from tests.analysis.traffic import CANDIDATE, STABLE

INTERVAL = 15.0


def comparing(
    now: float,
    per_scrape: int,
    differing: int,
    noise: int = 0,
    *,
    errors: int = 0,
    dropped: int = 0,
    candidate: str = CANDIDATE,
    begin: float = 3.0,
) -> MetricsView:
    """What Prometheus knows at ``now`` of a stable pod that makes so many comparisons between two scrapes.

    A quarter as many are made with itself, of which ``noise`` differ.
    """
    times = [begin + INTERVAL * number for number in range(400)]
    times = [at for at in times if now - 300 <= at <= now]
    rates = {
        (ShadowPair.CANDIDATE, ShadowResult.AGREE): per_scrape - differing - errors,
        (ShadowPair.CANDIDATE, ShadowResult.DIFFER): differing,
        (ShadowPair.CANDIDATE, ShadowResult.ERROR): errors,
        (ShadowPair.CANDIDATE, ShadowResult.DROPPED): dropped,
        (ShadowPair.SELF, ShadowResult.AGREE): per_scrape // 4 - noise,
        (ShadowPair.SELF, ShadowResult.DIFFER): noise,
    }
    series = tuple(
        ShadowSeries("s-0", candidate, pair, result, tuple((at, rate * (at - begin) / INTERVAL) for at in times))
        for (pair, result), rate in rates.items()
    )
    scraped = {"s-0": tuple(times)}
    revisions = {
        STABLE: RevisionMetrics(STABLE, scrapes=scraped, shadows=series),
        CANDIDATE: RevisionMetrics(CANDIDATE, scrapes={"c-0": tuple(times)}),
    }
    return MetricsView(now, True, "", INTERVAL, revisions)
