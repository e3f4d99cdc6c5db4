"""Error rates of the sequential tests beside those of a threshold rule, by simulation.

``python -m tests.analysis.simulation`` writes the table into ``docs/analysis.md``; a test keeps the two in step. The
tests are vectorised here; another test compares them with the operator's own code, number by number.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from slipway.analysis.evidence import (
    ABSOLUTE_ALTERNATIVES,
    HARM_ALTERNATIVES,
    RELATIVE_ALTERNATIVES,
    SAFETY_CEILING,
    SAFETY_WEIGHTS,
    HarmTest,
    SafetyTest,
    reserve,
    stake,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "analysis.md"
BEGIN, END = "<!-- simulation: begin -->\n", "<!-- simulation: end -->\n"

Array = NDArray[np.float64]

ALPHA = 0.05
THRESHOLD_SHARE = 0.01
"""The threshold rule: a check fails where more than this share of the candidate's requests failed…"""
THRESHOLD_FAILURES = 5
"""…and the rollout is rolled back at this many failed checks."""


@dataclass(frozen=True)
class Case:
    """One situation, looked at after every window."""

    name: str
    stable_rate: float
    candidate_rate: float
    value: float = 0.02
    ratio: float = 1.5
    requests: int = 50
    """Requests of both versions per window."""
    weight: float = 0.1
    windows: int = 1000
    runs: int = 600
    swing: float = 0.0
    """How far both rates swing around their mean over some 60 windows, as a share: time of day, a shared trouble."""

    def rates(self, window: int) -> tuple[float, float]:
        """The rates of candidate and stable in a window."""
        now = 1 + self.swing * float(np.sin(window / 10))
        return self.candidate_rate * now, self.stable_rate * now


@dataclass(frozen=True)
class Outcome:
    """What came of it: shares of the runs, and candidate requests at the verdict (median)."""

    harmful: float
    safe: float
    requests_to_harm: float
    requests_to_safe: float
    threshold_rolled_back: float
    threshold_promoted: float


CASES = (
    Case("healthy: both 0.5 %", 0.005, 0.005),
    Case("healthy, busy: both 0.5 %", 0.005, 0.005, requests=500, windows=300),
    Case("at the margin: 1 % and 1.5 %", 0.01, 0.015),
    Case("healthy: both 1.5 %", 0.015, 0.015),
    Case("twice as bad: 1 % and 2 %", 0.01, 0.02),
    Case("five times as bad: 1 % and 5 %", 0.01, 0.05),
    Case("twenty times as bad: 0.2 % and 4 %", 0.002, 0.04),
    Case("broken: 0.5 % and 30 %", 0.005, 0.3),
    Case("healthy, changing: both 0.1 %", 0.001, 0.001, requests=10, swing=0.8),
    Case("healthy, changing: both 0.5 %", 0.005, 0.005, requests=30, swing=0.8),
    Case("healthy, changing: both 2 %", 0.02, 0.02, requests=300, windows=300, swing=0.8),
    Case("twice as bad, changing: 1 % and 2 %", 0.01, 0.02, requests=300, windows=300, swing=0.8),
    Case("five times as bad, changing: 0.5 % and 2.5 %", 0.005, 0.025, requests=30, swing=0.8),
)


def split_growth(counts: tuple[Array, Array, Array, Array], ratio: float, factors: Array) -> Array:
    """As in the operator, for arrays of runs; the last axis is the alternative."""
    n_c, y_c, n_s, y_s = (each[..., None] for each in counts)
    held = np.log((ratio * n_c + n_s) / (factors * ratio * n_c + n_s))
    return np.where((n_c == 0) | (n_s == 0), 0.0, y_c * np.log(factors) + (y_c + y_s) * held)


@dataclass
class Wealth:
    """The wealth of both tests in every run."""

    harm: HarmTest
    safety: SafetyTest
    runs: int

    def __post_init__(self) -> None:
        self.harm_logs = np.full((self.runs, len(HARM_ALTERNATIVES)), -np.inf)
        self.safe_logs = np.zeros((self.runs, len(SAFETY_WEIGHTS)))
        self.windows = 0

    def advance(self, n_c: Array, y_c: Array, n_s: Array, y_s: Array) -> tuple[Array, Array]:
        """Wealth against and for the candidate after a window with requests of the candidate in every run."""
        self.windows += 1
        counts = (n_c, y_c, n_s, y_s)
        growth = np.minimum(split_growth(counts, self.harm.ratio, np.array(HARM_ALTERNATIVES)), self.harm.cap)
        self.harm_logs = np.logaddexp(self.harm_logs, np.log(stake(self.windows))) + growth
        shares = np.array(ABSOLUTE_ALTERNATIVES)
        good, value = (n_c - y_c)[:, None], self.safety.value
        absolute = y_c[:, None] * np.log(shares) + good * (np.log1p(-shares * value) - np.log1p(-value))
        relative = split_growth(counts, self.safety.ratio, np.array(RELATIVE_ALTERNATIVES))
        ceiling = np.log(SAFETY_CEILING * self.safety.bound / np.array(SAFETY_WEIGHTS))
        self.safe_logs = np.minimum(self.safe_logs + np.concatenate([absolute, relative], axis=1), ceiling)
        against = reserve(self.windows) + np.exp(np.minimum(self.harm_logs, 700.0)).sum(axis=1) / len(HARM_ALTERNATIVES)
        return against, np.exp(self.safe_logs) @ np.array(SAFETY_WEIGHTS)


def simulate(case: Case, seed: int) -> Outcome:
    """Run a case; each run ends at its first verdict, as a rollout does."""
    random = np.random.default_rng(seed)
    n_c = np.full(case.runs, float(round(case.requests * case.weight)))
    n_s = case.requests - n_c
    wealth = Wealth(HarmTest(case.ratio, 1 / ALPHA), SafetyTest(case.ratio, case.value, 1 / ALPHA), case.runs)
    harmed, proved = np.full(case.runs, np.inf), np.full(case.runs, np.inf)
    failures, rolled_back = np.zeros(case.runs), np.full(case.runs, np.inf)
    for window in range(1, case.windows + 1):
        candidate_rate, stable_rate = case.rates(window)
        y_c = random.binomial(n_c.astype(int), candidate_rate).astype(float)
        y_s = random.binomial(n_s.astype(int), stable_rate).astype(float)
        against, proof = wealth.advance(n_c, y_c, n_s, y_s)
        if window > 1:
            harmed = np.where((against >= 1 / ALPHA) & np.isinf(harmed), window, harmed)
            proved = np.where((proof >= 1 / ALPHA) & np.isinf(proved), window, proved)
        failures += y_c > THRESHOLD_SHARE * n_c
        rolled_back = np.where((failures >= THRESHOLD_FAILURES) & np.isinf(rolled_back), window, rolled_back)
    harmful, safe = harmed <= np.minimum(proved, case.windows), proved < harmed
    checks = 60  # a threshold rule promotes after a fixed number of checks
    return Outcome(
        harmful=float(harmful.mean()),
        safe=float(safe.mean()),
        requests_to_harm=float(np.median(harmed[harmful]) * n_c[0]) if harmful.any() else float("nan"),
        requests_to_safe=float(np.median(proved[safe]) * n_c[0]) if safe.any() else float("nan"),
        threshold_rolled_back=float((rolled_back <= checks).mean()),
        threshold_promoted=float((rolled_back > checks).mean()),
    )


def ever_alarmed(case: Case, seed: int) -> tuple[float, float]:
    """Share of runs that harm is ever found in, by the e-process and by a z-test repeated after every window."""
    random = np.random.default_rng(seed)
    n_c = np.full(case.runs, float(round(case.requests * case.weight)))
    n_s = case.requests - n_c
    wealth = Wealth(HarmTest(case.ratio, 1 / ALPHA), SafetyTest(case.ratio, case.value, 1 / ALPHA), case.runs)
    found, z_found = np.zeros(case.runs, bool), np.zeros(case.runs, bool)
    total = np.zeros((4, case.runs))
    for window in range(1, case.windows + 1):
        y_c = random.binomial(n_c.astype(int), case.candidate_rate).astype(float)
        y_s = random.binomial(n_s.astype(int), case.stable_rate).astype(float)
        against, _ = wealth.advance(n_c, y_c, n_s, y_s)
        found |= against >= 1 / ALPHA
        total += np.array([n_c, y_c, n_s, y_s])
        if window >= 20:
            z_found |= z_score(total, case.ratio) > 1.645
    return float(found.mean()), float(z_found.mean())


def z_score(total: Array, ratio: float) -> Array:
    """A one-sided test of two proportions at the tolerated ratio, as if looked at once."""
    n_c, y_c, n_s, y_s = total
    p_c, p_s = y_c / n_c, y_s / n_s
    deviation = np.sqrt(p_c * (1 - p_c) / n_c + ratio**2 * p_s * (1 - p_s) / n_s)
    score: Array = np.divide(p_c - ratio * p_s, deviation, out=np.zeros_like(p_c), where=deviation > 0)
    return score


def rows() -> list[tuple[Case, Outcome]]:
    """All cases with their outcomes."""
    return [(case, simulate(case, seed)) for seed, case in enumerate(CASES, start=1)]


def table(results: list[tuple[Case, Outcome]]) -> str:
    """The results in Markdown."""
    lines = [
        "| stable and candidate | found harmful | candidate requests to it (median) | found safe "
        "| candidate requests to it (median) | threshold rule: rolled back | threshold rule: promoted |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, outcome in results:
        cells = [
            f"{case.name}; {case.requests} requests per window",
            f"{100 * outcome.harmful:.1f} %",
            _number(outcome.requests_to_harm),
            f"{100 * outcome.safe:.1f} %",
            _number(outcome.requests_to_safe),
            f"{100 * outcome.threshold_rolled_back:.1f} %",
            f"{100 * outcome.threshold_promoted:.1f} %",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.0f}"


def main() -> None:
    """Write the table into the documentation."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    DOCUMENT.write_text(before + BEGIN + table(rows()) + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
