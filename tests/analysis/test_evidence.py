"""The sequential tests are fair bets: no setting of the hypothesis makes them grow on average."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slipway.analysis.evidence import (
    HARM_ALTERNATIVES,
    SAFETY_WEIGHTS,
    HarmTest,
    SafetyTest,
    WindowCounts,
    harm_growth,
    reserve,
    safety_growth,
    stake,
)

SIZES = st.integers(0, 40)
RATES = st.floats(0, 0.9)
RATIOS = st.floats(1.0, 5.0)


def binomial(n, p):
    """Probabilities of 0..n, and the numbers themselves."""
    ks = np.arange(n + 1)
    ways = np.array([math.comb(n, int(k)) for k in ks], dtype=float)
    return ks, ways * np.power(p, ks) * np.power(1 - p, n - ks)


def expectation(n_c, p_c, n_s, p_s, growth):
    """Mean factor of each alternative over all outcomes of a window."""
    total = None
    for bad_c, chance_c in zip(*binomial(n_c, p_c), strict=True):
        for bad_s, chance_s in zip(*binomial(n_s, p_s), strict=True):
            factors = np.exp(growth(WindowCounts(n_c, int(bad_c), n_s, int(bad_s)))) * chance_c * chance_s
            total = factors if total is None else total + factors
    return total


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, RATES, RATIOS)
def test_evidence_of_harm_does_not_grow_where_the_ratio_is_tolerated(n_c, n_s, p_s, ratio):
    p_c = min(ratio * p_s, 1.0)
    if ratio * p_s > 1:
        p_s = 1 / ratio
    means = expectation(n_c, p_c, n_s, p_s, lambda counts: harm_growth(counts, ratio))
    assert (means <= 1 + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, RATES, RATIOS, st.floats(0.001, 0.5), st.floats(1.0, 3.0))
def test_evidence_of_safety_does_not_grow_where_both_margins_are_exceeded(n_c, n_s, p_s, ratio, value, excess):
    p_c = min(max(value, ratio * p_s) * excess, 1.0)
    p_s = min(p_s, p_c / ratio)
    means = expectation(n_c, p_c, n_s, p_s, lambda counts: safety_growth(counts, ratio, value))
    assert (means <= 1 + 1e-9).all()


@given(st.floats(0.001, 0.2), RATIOS, st.integers(1, 3000), st.integers(1, 3000))
def test_the_bound_holds_for_windows_of_any_size(p_s, ratio, n_c, n_s):
    # In closed form: the mean of exp(a * y) for y of n with chance p is (1 + p (exp(a) - 1)) ** n.
    p_c = ratio * p_s if ratio * p_s <= 1 else 1.0
    p_s = p_c / ratio
    for factor in HARM_ALTERNATIVES:
        held = (ratio * n_c + n_s) / (factor * ratio * n_c + n_s)
        log = n_c * math.log1p(p_c * (factor * held - 1)) + n_s * math.log1p(p_s * (held - 1))
        assert log <= 1e-9


@pytest.mark.parametrize("windows", [1, 2, 10, 1000])
def test_stakes_and_reserve_are_all_of_the_wealth(windows):
    assert sum(stake(window) for window in range(1, windows + 1)) + reserve(windows) == pytest.approx(1)


COUNTS = st.builds(
    lambda n_c, b_c, n_s, b_s: WindowCounts(n_c, min(b_c, n_c), n_s, min(b_s, n_s)),
    SIZES, SIZES, SIZES, SIZES,
)  # fmt: skip


@given(COUNTS, RATIOS)
def test_a_bad_request_of_the_candidate_never_lowers_the_evidence_of_harm(counts, ratio):
    if counts.candidate_bad == counts.candidate:
        return
    worse = WindowCounts(counts.candidate, counts.candidate_bad + 1, counts.stable, counts.stable_bad)
    assert all(a <= b + 1e-12 for a, b in zip(harm_growth(counts, ratio), harm_growth(worse, ratio), strict=True))


@given(COUNTS, RATIOS)
def test_a_bad_request_of_stable_never_raises_the_evidence_of_harm(counts, ratio):
    if counts.stable_bad == counts.stable:
        return
    shared = WindowCounts(counts.candidate, counts.candidate_bad, counts.stable, counts.stable_bad + 1)
    assert all(a >= b - 1e-12 for a, b in zip(harm_growth(counts, ratio), harm_growth(shared, ratio), strict=True))


@given(COUNTS, RATIOS, st.floats(0.001, 0.5))
def test_a_bad_request_of_the_candidate_never_raises_the_evidence_of_safety(counts, ratio, value):
    if counts.candidate_bad == counts.candidate:
        return
    worse = WindowCounts(counts.candidate, counts.candidate_bad + 1, counts.stable, counts.stable_bad)
    pairs = zip(safety_growth(counts, ratio, value), safety_growth(worse, ratio, value), strict=True)
    assert all(a >= b - 1e-12 for a, b in pairs)


@given(st.integers(0, 500), st.integers(0, 500), RATIOS)
def test_without_one_of_the_versions_there_is_no_evidence_of_harm(requests, bad, ratio):
    bad = min(bad, requests)
    assert set(harm_growth(WindowCounts(requests, bad, 0, 0), ratio)) == {0.0}
    assert set(harm_growth(WindowCounts(0, 0, requests, bad), ratio)) == {0.0}


def test_one_window_never_finds_harm_however_bad_it_is():
    test = HarmTest(1.5, 40.0)
    logs = test.advance((), 1, WindowCounts(10_000, 10_000, 90_000, 0))
    assert test.wealth(logs, 1) < test.bound


def test_a_candidate_that_turns_bad_late_is_found_soon():
    test, windows = HarmTest(1.5, 40.0), 0
    logs: tuple[float, ...] = ()
    for _ in range(2000):
        windows += 1
        logs = test.advance(logs, windows, WindowCounts(50, 1, 450, 9))
    turned = windows
    while test.wealth(logs, windows) < test.bound and windows < turned + 100:
        windows += 1
        logs = test.advance(logs, windows, WindowCounts(50, 10, 450, 9))
    assert windows - turned <= 12


def test_safety_can_be_taken_back():
    test = SafetyTest(1.5, 0.01, 20.0)
    logs: tuple[float, ...] = ()
    for _ in range(1000):
        logs = test.advance(logs, WindowCounts(100, 0, 900, 0))
    assert test.wealth(logs) >= test.bound
    for _ in range(3):
        logs = test.advance(logs, WindowCounts(100, 5, 900, 0))
    assert test.wealth(logs) < test.bound


def test_the_weights_of_the_safety_test_are_all_of_the_wealth():
    assert sum(SAFETY_WEIGHTS) == pytest.approx(1)
    assert SafetyTest(1.5, 0.01, 20.0).wealth(()) == 1.0
