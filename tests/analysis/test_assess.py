"""Verdicts: what the evidence says, why it says nothing, and that it survives restarts unchanged."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.analysis import assess
from slipway.api.rollout import Analysis, Check, MetricKind
from slipway.api.samples import CounterSeries, MetricsView, RevisionMetrics
from slipway.api.scalars import DecimalString, Duration
from slipway.api.status import CheckStatus, Counts, Verdict

from tests.analysis.traffic import CANDIDATE, STABLE, Pod, view

ERRORS = Check(name="errors", metric=MetricKind.ERROR_RATE, max_value=DecimalString("0.02"))
LATENCY = Check(name="latency", metric=MetricKind.LATENCY, threshold=Duration("300ms"))
BOTH = Analysis(checks=(ERRORS, LATENCY))
ONLY_ERRORS = Analysis(checks=(ERRORS,))
COUNTING_FROM = 61.0


def look(metrics, previous=(), analysis=ONLY_ERRORS, now=None, rollout="r1", counting_from=COUNTING_FROM):
    return assess(
        analysis,
        previous,
        rollout_id=rollout,
        candidate=CANDIDATE,
        stable=STABLE,
        metrics=metrics,
        counting_from=counting_from,
        now=metrics.at if now is None else now,
    )


def follow(candidate, stable, times, previous=(), analysis=ONLY_ERRORS):
    """Look again and again, through the status' JSON each time, until a verdict."""
    result = None
    for now in times:
        result = look(view(candidate, stable, float(now)), previous, analysis)
        previous = reread(result.checks)
        if result.verdict is not Verdict.UNDECIDED:
            break
    return result


def reread(checks):
    return tuple(CheckStatus.model_validate(json.loads(json.dumps(check.to_wire()))) for check in checks)


def fleet(candidate_rate=0.0, stable_rate=0.0, candidates=1, **options: Any) -> tuple[list[Pod], list[Pod]]:
    return (
        [Pod.steady(f"c-{n}", 10, candidate_rate, 10 + n, begin=3.0 + n, **options) for n in range(candidates)],
        [Pod.steady("s-0", 90, stable_rate, 20, begin=8.0, **options)],
    )


def test_a_harmful_candidate_is_found_and_named():
    result = follow(*fleet(0.2, 0.005), range(100, 1000, 30))
    assert (result.verdict, result.reason, result.harmful) == (Verdict.HARMFUL, "HarmDetected", "errors")
    assert "errors: candidate" in result.message
    assert result.checks[0].evidence.number >= 20


def test_a_good_candidate_is_found_safe_by_positive_evidence_only():
    candidate, stable = fleet(0.0, 0.0)
    result = follow(candidate, stable, range(100, 1900, 30), analysis=BOTH)
    assert (result.verdict, result.reason) == (Verdict.SAFE, "EvidenceOfSafety")
    assert result.checks[1].candidate.requests > 400


def test_slow_answers_are_harm():
    candidate = [Pod.steady("c-0", 10, 0.0, 1, slow_rate=0.3)]
    stable = [Pod.steady("s-0", 90, 0.0, 2, slow_rate=0.005)]
    result = follow(candidate, stable, range(100, 1000, 30), analysis=BOTH)
    assert (result.verdict, result.harmful) == (Verdict.HARMFUL, "latency")


@pytest.mark.parametrize("which", [CANDIDATE, STABLE])
def test_requests_whose_time_nobody_measures_are_named(which):
    """As of a Triton whose models have no histogram, and no proxy that is scraped."""
    candidate, stable = fleet()
    metrics = view(candidate, stable, 600.0)
    mute = replace(metrics.of(which), latencies=())
    metrics = replace(metrics, revisions={**metrics.revisions, which: mute})
    result = look(metrics, analysis=BOTH)
    errors, latency = result.checks
    assert errors.reason != "NoHistogram"
    assert (latency.verdict, latency.reason, result.reason) == (Verdict.UNDECIDED, "NoHistogram", "NoHistogram")
    assert which in latency.message


def test_equal_and_bad_versions_are_no_harm():
    assert follow(*fleet(0.1, 0.1), range(100, 1000, 30)).verdict is not Verdict.HARMFUL


def test_harm_of_one_check_wins_over_safety_of_the_other():
    candidate = [Pod.steady("c-0", 60, 0.0, 1, slow_rate=0.2)]
    stable = [Pod.steady("s-0", 60, 0.0, 2, slow_rate=0.001)]
    result = look(view(candidate, stable, 300.0), analysis=BOTH)
    assert [check.verdict for check in result.checks] == [Verdict.SAFE, Verdict.HARMFUL]
    assert result.verdict is Verdict.HARMFUL


def test_harm_stays_in_its_rollout_and_not_in_the_next():
    harmful = follow(*fleet(0.2, 0.005), range(100, 1000, 30)).checks
    healthy = view(*fleet(0.0, 0.0), now=1500.0)
    again = look(healthy, harmful)
    assert (again.verdict, again.checks) == (Verdict.HARMFUL, harmful)
    edited = Analysis(checks=(ERRORS.model_copy(update={"max_ratio": 50.0}),))
    assert look(healthy, harmful, edited).verdict is Verdict.HARMFUL
    fresh = look(healthy, harmful, rollout="r2", counting_from=1300.0)
    assert fresh.verdict is Verdict.UNDECIDED
    assert fresh.checks[0].candidate.requests <= 100
    assert fresh.checks[0].rollout == "r2"


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(0.05, 0.01), (0.0, 0.0), (0.01, 0.01)]),
    st.lists(st.integers(100, 900), min_size=0, max_size=12, unique=True),
)
def test_it_does_not_matter_how_often_one_looks_nor_where_the_operator_was_restarted(rates, looks):
    candidate, stable = fleet(*rates)
    end, previous = 900.0, ()
    # Scrapes reach 300 s back: look at least every 150 s.
    for now in sorted({*looks, 240, 390, 540, 690, 840}):
        previous = reread(look(view(candidate, stable, float(now)), previous).checks)
    often = look(view(candidate, stable, end), previous).checks
    previous = ()
    for now in range(100, 900, 7):
        previous = look(view(candidate, stable, float(now)), previous).checks
    always = look(view(candidate, stable, end), previous).checks
    assert often[0].verdict is always[0].verdict
    if always[0].verdict is Verdict.UNDECIDED:
        assert often == always


def test_the_same_look_twice_changes_nothing():
    metrics = view(*fleet(0.01, 0.01), now=400.0)
    first = look(metrics)
    assert look(metrics, reread(first.checks)) == first


def test_evidence_survives_json_exactly():
    first = look(view(*fleet(0.013, 0.011), now=400.0)).checks
    assert reread(first) == first


def test_a_changed_definition_starts_anew():
    before = look(view(*fleet(0.01, 0.01), now=400.0)).checks
    strict = Analysis(checks=(ERRORS.model_copy(update={"max_ratio": 1.1}),))
    after = look(view(*fleet(0.01, 0.01), now=400.0), before, strict).checks
    assert after[0].definition != before[0].definition
    assert after[0].harm_log != before[0].harm_log


def test_no_checks_are_safe():
    result = look(MetricsView(), analysis=Analysis(checks=()))
    assert (result.verdict, result.reason, result.checks) == (Verdict.SAFE, "NoChecks", ())


def test_without_a_confirmed_weight_nothing_is_counted():
    metrics = view(*fleet(0.5, 0.0), now=400.0)
    result = look(metrics, counting_from=None)
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "CollectingEvidence")
    earlier = look(metrics).checks
    assert look(view(*fleet(0.5, 0.0), now=900.0), earlier, counting_from=None).checks == earlier


def test_an_expression_without_a_value_is_never_safe():
    custom = Check(name="custom", query="up")
    result = look(view(*fleet(), now=900.0), analysis=Analysis(checks=(custom,)))
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "NoValue")


SAFE_SO_FAR = range(100, 1900, 30)


def quiet(pods, after):
    """Pods that are still scraped but not asked any more."""
    silent = []
    for pod in pods:
        last = max(entry for entry in pod.history if entry[0] <= after)
        silent.append(Pod(pod.name, [entry if entry[0] <= after else (entry[0], *last[1:]) for entry in pod.history]))
    return silent


class TestAbsence:
    """No data is no evidence, and each kind of it has a name."""

    def undecided(self, result, reason):
        assert (result.verdict, result.reason) == (Verdict.UNDECIDED, reason), result.message

    def test_prometheus_is_down(self):
        safe = follow(*fleet(), SAFE_SO_FAR).checks
        result = look(MetricsView(2000.0, False, "connection refused"), safe)
        self.undecided(result, "MetricsUnavailable")
        assert "connection refused" in result.message
        assert result.checks[0].safe_log == safe[0].safe_log
        assert result.checks[0].window == safe[0].window

    def test_no_pod_is_known(self):
        self.undecided(look(MetricsView(400.0, True, "")), "MetricsUnavailable")

    def test_only_the_candidate_is_unknown(self):
        metrics = view([], fleet()[1], now=400.0)
        result = look(metrics)
        self.undecided(result, "MetricsUnavailable")
        assert CANDIDATE in result.message

    def test_scrapes_have_stopped(self):
        candidate, stable = fleet(end=700.0)
        self.undecided(look(view(candidate, stable, now=900.0)), "MetricsStale")

    def test_the_snapshot_itself_is_old(self):
        self.undecided(look(view(*fleet(), now=400.0), now=700.0), "MetricsStale")

    def test_nobody_asks(self):
        candidate, stable = (quiet(pods, after=0.0 + 20) for pods in fleet())
        self.undecided(look(view(candidate, stable, now=400.0)), "NoTraffic")

    def test_traffic_ends(self):
        candidate, stable = (quiet(pods, after=200.0) for pods in fleet())
        before = look(view(candidate, stable, now=260.0)).checks
        result = look(view(candidate, stable, now=420.0), before)
        self.undecided(result, "NoTraffic")
        assert result.checks[0].harm_log == before[0].harm_log

    def test_the_candidate_gets_nothing(self):
        candidate, stable = fleet()
        result = look(view(quiet(candidate, after=20.0), stable, now=400.0))
        self.undecided(result, "NoCanaryTraffic")
        assert result.checks[0].silent_windows >= 3

    def test_traffic_that_comes_late_is_fine(self):
        candidate, stable = fleet()
        starved = look(view(quiet(candidate, after=20.0), stable, now=300.0)).checks
        result = look(view(candidate, stable, now=420.0), starved)
        self.undecided(result, "CollectingEvidence")

    def test_stable_gets_nothing(self):
        candidate, stable = fleet(0.3)
        self.undecided(look(view(candidate, quiet(stable, after=20.0), now=400.0)), "NoStableBaseline")

    def test_safety_needs_no_baseline(self):
        candidate, stable = fleet()
        result = follow(candidate, quiet(stable, after=20.0), SAFE_SO_FAR)
        assert result.verdict is Verdict.SAFE

    def test_a_safe_candidate_that_loses_its_traffic_does_not_move_up(self):
        candidate, stable = fleet()
        safe = follow(candidate, stable, SAFE_SO_FAR)
        at = 1500.0
        starved = look(view(quiet(candidate, after=at - 260), stable, now=at), safe.checks)
        self.undecided(starved, "NoCanaryTraffic")

    def test_no_bound_is_high_enough(self):
        slow = Analysis(checks=(LATENCY.model_copy(update={"threshold": Duration("2s")}),))
        result = look(view(*fleet(), now=400.0), analysis=slow)
        self.undecided(result, "MetricsUnavailable")
        assert "2s" in result.message

    def test_one_window_is_no_verdict(self):
        candidate = [Pod.steady("c-0", 20_000, 0.0, 1)]
        stable = [Pod.steady("s-0", 20_000, 0.0, 2)]
        self.undecided(look(view(candidate, stable, now=155.0)), "CollectingEvidence")
        assert look(view(candidate, stable, now=185.0)).verdict is Verdict.SAFE


def test_a_rounded_threshold_is_said():
    check = LATENCY.model_copy(update={"threshold": Duration("250ms")})
    result = look(view(*fleet(), now=400.0), analysis=Analysis(checks=(check,)))
    assert "250ms rounded up to the histogram's bound 300ms" in result.checks[0].message


def test_errors_of_one_pod_of_several_are_a_pods_problem():
    bad = Pod.steady("c-0", 10, 0.5, 1)
    good = Pod.steady("c-1", 10, 0.0, 2)
    stable = [Pod.steady("s-0", 90, 0.001, 3)]
    result = follow([bad, good], stable, range(100, 900, 30))
    assert result.verdict is Verdict.UNDECIDED
    assert "all bad requests came from the pod c-0" in result.message
    assert follow([bad], stable, range(100, 900, 30)).verdict is Verdict.HARMFUL
    also_bad = Pod.steady("c-1", 10, 0.5, 2)
    assert follow([bad, also_bad], stable, range(100, 900, 30)).verdict is Verdict.HARMFUL


def test_a_burst_in_one_window_is_not_enough():
    candidate, stable = fleet(rate_at=lambda at: 1.0 if 300 <= at < 315 else 0.0)
    stable = fleet()[1]
    result = follow(candidate, stable, range(100, 900, 30), analysis=Analysis(checks=(ERRORS,), alpha=0.5))
    assert result.verdict is not Verdict.HARMFUL


def test_min_samples_hold_both_verdicts_back():
    many = Analysis(checks=(ERRORS.model_copy(update={"min_samples": 100_000}),))
    for rates in ((0.5, 0.0), (0.0, 0.0)):
        result = follow(*fleet(*rates), range(100, 1000, 30), analysis=many)
        assert result.verdict is Verdict.UNDECIDED
        assert result.checks[0].requests_needed > 90_000


def test_the_need_shrinks_as_evidence_grows_and_comes_true():
    candidate, stable = fleet()
    first = look(view(candidate, stable, now=130.0)).checks[0]
    assert 200 < first.requests_needed < 300
    result = follow(candidate, stable, SAFE_SO_FAR)
    assert result.checks[0].requests_needed is None
    assert result.checks[0].candidate.requests == pytest.approx(first.requests_needed, rel=0.25)


def test_rates_that_lead_nowhere_have_no_need():
    candidate, stable = fleet(0.035, 0.025)
    check = ERRORS.model_copy(update={"max_ratio": 1.4})
    counted = CheckStatus(
        name="errors",
        rollout="r1",
        definition="5xx; ratio 1.4; value 0.02",
        candidate=Counts(requests=10_000, bad=350),
        stable=Counts(requests=100_000, bad=2500),
    )
    result = look(view(candidate, stable, now=130.0), (counted,), Analysis(checks=(check,)))
    assert result.checks[0].requests_needed is None


def test_broken_logs_in_the_status_start_anew():
    before = look(view(*fleet(), now=400.0)).checks[0]
    broken = before.model_copy(update={"harm_log": (DecimalString("1"),), "safe_log": (DecimalString("2"),) * 3})
    after = look(view(*fleet(), now=700.0), (broken,)).checks[0]
    assert (len(after.harm_log), len(after.safe_log)) == (len(before.harm_log), len(before.safe_log))


def test_a_restarted_pod_counts_from_zero():
    candidate, stable = fleet(0.0)
    history = [(at, asked if at < 300 else asked - 190, bad, slow) for at, asked, bad, slow in candidate[0].history]
    restarted = [Pod("c-0", history)]
    counts = look(view(restarted, stable, now=400.0)).checks[0].candidate
    assert 0 < counts.requests <= look(view(candidate, stable, now=400.0)).checks[0].candidate.requests
    assert counts.bad == 0


def test_other_revisions_never_count():
    metrics = view(*fleet(), now=400.0)
    stranger = RevisionMetrics("m-v9", requests=(CounterSeries("x", "503", ((100.0, 0.0), (200.0, 900.0))),))
    crowded = replace(metrics, revisions={**metrics.revisions, "m-v9": stranger})
    assert look(crowded).checks == look(metrics).checks


@pytest.mark.parametrize("kind", ["unavailable", "stale", "quiet", "safe"])
def test_while_nothing_happens_the_status_stays_as_it_is(kind):
    candidate, stable = fleet(end=500.0 if kind == "stale" else 2000.0)
    if kind == "quiet":
        candidate, stable = quiet(candidate, after=200.0), quiet(stable, after=200.0)

    def at(now):
        return MetricsView(now, False, "no connection") if kind == "unavailable" else view(candidate, stable, now)

    first = look(at(700.0), look(view(candidate, stable, 520.0)).checks)
    later = 701.0 if kind == "safe" else 740.0
    assert look(at(later), reread(first.checks)) == first
