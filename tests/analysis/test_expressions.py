"""Checks by the user's own PromQL: thresholds, with named reasons where there is no value."""

from dataclasses import replace

import pytest
from slipway.analysis import Subject, assess, expressions
from slipway.analysis.expressions import render
from slipway.api.rollout import Analysis, Check
from slipway.api.samples import MetricsView, Quality, Sample
from slipway.api.scalars import DecimalString
from slipway.api.status import Verdict

from tests.analysis.test_assess import fleet, reread
from tests.analysis.traffic import CANDIDATE, STABLE, view

SUBJECT = Subject("nlp", "sentiment", "v2", CANDIDATE)
QUERY = 'sum(rate(clicks{version="{{version}}",ns="{{ namespace }}"}[5m]))'
ASKED = 'sum(rate(clicks{version="v2",ns="nlp"}[5m]))'
CLICKS = Check(name="clicks", query=QUERY, min=DecimalString("10"), max=DecimalString("20"))


def look(value: float | Sample | None, now: float, previous=(), check: Check = CLICKS):
    metrics: MetricsView = view(*fleet(), now=now)
    if value is not None:
        sample = value if isinstance(value, Sample) else Sample(value, Quality.OK, now)
        metrics = replace(metrics, queries={ASKED: sample})
    return assess(
        Analysis(checks=(check,)),
        previous,
        rollout_id="r1",
        candidate=CANDIDATE,
        stable=STABLE,
        metrics=metrics,
        counting_from=61.0,
        now=now,
        subject=SUBJECT,
    )


def follow(values, check: Check = CLICKS):
    previous = ()
    for number, value in enumerate(values):
        result = look(value, 130.0 + 30 * number, previous, check)
        previous = reread(result.checks)
    return result


def test_placeholders_are_filled_and_escaped():
    assert render(QUERY, SUBJECT) == ASKED
    assert render("{{name}} {{revision}} {{other}}", SUBJECT) == f"sentiment {CANDIDATE} {{{{other}}}}"
    assert render('x{v="{{version}}"}', Subject(version='"} or vector(1) #\\')) == 'x{v="\\"} or vector(1) #\\\\"}'
    assert list(expressions(Analysis(checks=(CLICKS,)), SUBJECT)) == [ASKED]


def test_within_bounds_is_safe_and_says_what_that_is_worth():
    result = follow([12, 13, 14])
    assert (result.verdict, result.checks[0].reason) == (Verdict.SAFE, "WithinBounds")
    assert "not error-controlled" in result.message


@pytest.mark.parametrize("value", [9.9, 20.1])
def test_out_of_bounds_twice_running_is_harm(value):
    assert follow([12, value]).verdict is Verdict.UNDECIDED
    result = follow([12, value, value])
    assert (result.verdict, result.reason, result.harmful) == (Verdict.HARMFUL, "OutOfBounds", "clicks")


def test_once_out_of_bounds_is_no_verdict():
    assert follow([12, 9, 12, 9, 12]).verdict is Verdict.SAFE
    assert follow([12, 9, 12, 9]).verdict is Verdict.UNDECIDED


def test_a_window_is_looked_at_once():
    first = look(9, 130.0)
    again = look(9, 131.0, reread(first.checks))
    assert (again.verdict, again.checks[0].windows) == (Verdict.UNDECIDED, first.checks[0].windows)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "not been asked"),
        (Sample(reason="the expression has no value"), "has no value"),
        (Sample(12.0, Quality.OK, 10.0), "is from"),
    ],
)
def test_no_value_is_no_evidence(value, words):
    result = look(value, 400.0)
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "NoValue")
    assert words in result.message


def test_no_prometheus_is_no_evidence():
    result = assess(
        Analysis(checks=(CLICKS,)), (), rollout_id="r1", candidate=CANDIDATE, stable=STABLE,
        metrics=MetricsView(at=300.0), counting_from=61.0, now=300.0, subject=SUBJECT,
    )  # fmt: skip
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "NoValue")


def test_too_few_requests_are_waited_for():
    few = CLICKS.model_copy(update={"min_samples": 100_000})
    result = follow([5, 5, 5, 5], few)
    assert (result.verdict, result.reason) == (Verdict.UNDECIDED, "CollectingEvidence")
    assert "of 100000 requests" in result.message
    enough = CLICKS.model_copy(update={"min_samples": 20})
    assert follow([12] * 6, enough).verdict is Verdict.SAFE


def test_another_expression_starts_anew():
    before = follow([12, 12, 12]).checks
    other = CLICKS.model_copy(update={"max": DecimalString("30")})
    assert look(12, 250.0, before, other).checks[0].windows <= 4
    assert look(12, 250.0, before, other).checks[0].definition != before[0].definition
