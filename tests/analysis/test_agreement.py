"""Answers to repeated requests: how far the candidate agrees with stable, beyond what stable disagrees with itself."""

import math
from pathlib import Path

import pytest
from slipway.analysis import assess
from slipway.analysis.agreement import AgreementEvidence
from slipway.api.rollout import Analysis, Check, MetricKind
from slipway.api.samples import MetricsView
from slipway.api.scalars import DecimalString
from slipway.api.status import Counts, Verdict

from tests.analysis.agreement_rates import SCENES, rates, table
from tests.analysis.shadows import comparing
from tests.analysis.test_assess import reread
from tests.analysis.traffic import CANDIDATE, STABLE

AGREEMENT = Check(name="agreement", metric=MetricKind.SHADOW_AGREEMENT, min_value=DecimalString("0.99"))
ERRORS = Check(name="errors", metric=MetricKind.ERROR_RATE)


def look(metrics: MetricsView, previous=(), checks=(AGREEMENT,), served=False, alpha=0.05):
    return assess(
        Analysis(checks=checks, alpha=alpha),
        previous,
        rollout_id="r1",
        candidate=CANDIDATE,
        stable=STABLE,
        metrics=metrics,
        counting_from=61.0,
        now=metrics.at,
        served=served,
    )


def follow(until: int = 1500, **traffic):
    previous = ()
    for now in range(100, until, 30):
        result = look(comparing(float(now), **traffic), previous)
        previous = reread(result.checks)
        if result.verdict is not Verdict.UNDECIDED:
            break
    return result


def test_a_candidate_that_answers_the_same_is_safe():
    result = follow(per_scrape=40, differing=0)
    assert (result.verdict, result.reason) == (Verdict.SAFE, "EvidenceOfSafety")
    assert 300 < result.checks[0].candidate.requests < 700
    assert result.checks[0].candidate.requests > 3 * result.checks[0].stable.requests


def test_one_that_answers_otherwise_is_harmful():
    result = follow(per_scrape=40, differing=3)
    assert (result.verdict, result.reason, result.harmful) == (Verdict.HARMFUL, "HarmDetected", "agreement")
    assert "candidate differs in" in result.message


def test_errors_are_wrong_answers_and_dropped_ones_are_none():
    assert follow(per_scrape=40, differing=0, errors=3).verdict is Verdict.HARMFUL
    assert follow(per_scrape=40, differing=0, dropped=20).verdict is Verdict.SAFE


def test_a_model_that_contradicts_itself_may_be_replaced_by_one_that_does_too():
    """Ten per cent of answers differ, with itself as with the candidate: no harm, whatever minValue says."""
    result = follow(per_scrape=40, differing=4, noise=1)
    assert result.verdict is not Verdict.HARMFUL
    assert result.checks[0].stable.bad > 50
    assert follow(per_scrape=40, differing=12, noise=1).verdict is Verdict.HARMFUL


def test_nothing_compared_is_no_evidence():
    result = look(comparing(300.0, 0, 0))
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "NoComparisons")
    assert "no requests of the sample" in result.message
    others = look(comparing(300.0, 40, 40, candidate="m-v3-33333333"))
    assert (others.reason, others.checks[0].candidate.requests) == ("NoComparisons", 0)
    assert "do not repeat requests yet" in others.message
    assert "got no answer from the candidate" in look(comparing(300.0, 0, 0, dropped=5)).message


def test_a_silent_prometheus_holds():
    assert look(MetricsView(at=300.0)).reason == "MetricsUnavailable"
    stale = comparing(300.0, 40, 0)
    result = assess(
        Analysis(checks=(AGREEMENT,)),
        (),
        rollout_id="r1",
        candidate=CANDIDATE,
        stable=STABLE,
        metrics=MetricsView(900.0, True, "", 15.0, stale.revisions),
        counting_from=61.0,
        now=900.0,
    )
    assert result.reason == "MetricsStale"


def test_without_traffic_of_its_own_only_such_checks_count():
    checks = (ERRORS, AGREEMENT)
    previous = ()
    for now in range(100, 1500, 30):
        result = look(comparing(float(now), 40, 0), previous, checks)
        previous = reread(result.checks)
    assert (result.verdict, len(result.checks)) == (Verdict.SAFE, 2)
    assert look(comparing(1500.0, 40, 0), previous, checks, served=True).verdict is Verdict.UNDECIDED
    alone = look(comparing(1500.0, 40, 0), (), (ERRORS,))
    assert (alone.verdict, alone.reason) == (Verdict.UNDECIDED, "NoComparisons")


def test_more_comparisons_are_promised_truthfully():
    first = look(comparing(160.0, 40, 0)).checks[0]
    needed = first.requests_needed + first.candidate.requests
    assert 300 < needed < 700


def evidence(bad: int, total: int, noise: int, repeats: int, tolerance: float = 0.01) -> AgreementEvidence:
    return AgreementEvidence(Counts(requests=total, bad=bad), Counts(requests=repeats, bad=noise), tolerance=tolerance)


def test_before_anything_is_compared_nothing_is_known():
    assert evidence(0, 0, 0, 0).harm == pytest.approx(0)
    assert evidence(0, 0, 0, 0).safety == pytest.approx(0)


def test_without_knowing_the_noise_no_harm_can_be_told_but_safety_can():
    assert evidence(500, 1000, 0, 0).harm < math.log(20)
    assert evidence(0, 1000, 0, 0).safety > math.log(20)


def test_false_alarms_stay_below_alpha_however_often_one_looks():
    for scene in SCENES:
        found = rates(scene)
        if scene.excess <= scene.tolerance:
            assert found.harmful <= 0.05, scene
        if scene.excess >= scene.tolerance:
            assert found.safe <= 0.05, scene


def test_the_documented_table_is_current():
    text = (Path(__file__).parents[2] / "docs" / "analysis.md").read_text()
    begin, end = "<!-- agreement: begin -->\n", "\n<!-- agreement: end -->"
    assert text[text.index(begin) + len(begin) : text.index(end)] == table()
