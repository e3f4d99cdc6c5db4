"""Checks by the user's own PromQL: a value within bounds, looked at once per window.

That is a threshold and no test: how often a healthy candidate breaks it depends on the expression, so these checks are
no part of the bound that ``alpha`` sets, and their messages say so.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from slipway.analysis.judging import FEWEST_WINDOWS, Trial
from slipway.analysis.ledger import Ledger
from slipway.analysis.reasons import Reason
from slipway.analysis.windows import Source, closed_windows, error_series
from slipway.api.rollout import Analysis, Check
from slipway.api.samples import Sample
from slipway.api.status import CheckStatus, Verdict
from slipway.api.timestamps import whole_second

__all__ = ["Subject", "expression_definition", "expressions", "judge_expression", "render"]

PATIENCE = 60.0
"""Seconds for which an answer may stand where a window is shorter."""
DIGEST_LENGTH = 16

_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an expression is about; names of the placeholders in it."""

    namespace: str = ""
    name: str = ""
    version: str = ""
    revision: str = ""


def render(query: str, subject: Subject) -> str:
    """The expression with ``{{version}}`` and the like filled in, escaped as in a PromQL string."""
    values = {name: getattr(subject, name) for name in ("namespace", "name", "version", "revision")}

    def fill(match: re.Match[str]) -> str:
        value = values.get(match.group(1))
        return match.group(0) if value is None else value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return _PLACEHOLDER.sub(fill, query)


def expressions(analysis: Analysis, subject: Subject) -> Iterator[str]:
    """What Prometheus has to be asked for these checks."""
    for check in analysis.checks:
        if check.query:
            yield render(check.query, subject)


def expression_definition(check: Check) -> str:
    """Evidence belongs to one expression with one pair of bounds."""
    digest = hashlib.sha256(check.query.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"query {digest}; {_bounds(check)}"


def judge_expression(trial: Trial, check: Check, before: CheckStatus, subject: Subject) -> CheckStatus:
    """The check's status after the windows that have closed since.

    Harm needs a value out of bounds in two windows running, safety one within them after at least two windows and
    ``minSamples`` requests of the candidate.
    """
    ledger = Ledger.of(before)
    sample, lack = _sample(trial, check, subject)
    span = trial.span(ledger)
    if span.closed and not lack:
        arms = (Source(trial.candidate, error_series), Source(trial.stable, error_series))
        for window in closed_windows(trial.metrics, arms, span):
            ledger = ledger.tally(window)
        bad = ledger.bad_windows + 1 if not _within(check, sample.value) else 0
        # The number of windows is that of looks at the value, whether requests came in them or not.
        ledger = replace(ledger, windows=before.windows + 1, bad_windows=bad, counted=span.end)
    verdict, reason, message = _verdict(check, ledger, sample, lack)
    update = {"verdict": verdict, "reason": reason, "message": message, "evidence": None, "requests_needed": None}
    return ledger.write(before).model_copy(update=update)


def _sample(trial: Trial, check: Check, subject: Subject) -> tuple[Sample, str]:
    """The value and why there is none to be judged."""
    if not trial.metrics.available:
        return Sample(), f"Prometheus gave no answer: {trial.metrics.error}"
    sample = trial.metrics.queries.get(render(check.query, subject))
    if sample is None:
        return Sample(), "Prometheus has not been asked yet"
    if not sample.ok:
        return sample, sample.reason or "the expression has no value"
    if trial.now - sample.at > max(PATIENCE, trial.interval):
        return sample, f"the last value is from {whole_second(sample.at)}"
    return sample, ""


def _verdict(check: Check, ledger: Ledger, sample: Sample, lack: str) -> tuple[Verdict, Reason, str]:
    if lack:
        return Verdict.UNDECIDED, Reason.NO_VALUE, lack
    within = _within(check, sample.value)
    facts = (
        f"value {sample.value:.6g} is {'within' if within else 'out of'} {_bounds(check)}"
        f" after {ledger.windows} windows; a threshold, not error-controlled"
    )
    if ledger.candidate.requests < check.min_samples:
        need = f"{ledger.candidate.requests} of {check.min_samples} requests of the candidate"
        return Verdict.UNDECIDED, Reason.COLLECTING_EVIDENCE, f"{facts}; {need}"
    if ledger.bad_windows >= FEWEST_WINDOWS:
        return Verdict.HARMFUL, Reason.OUT_OF_BOUNDS, facts
    if within and ledger.windows >= FEWEST_WINDOWS:
        return Verdict.SAFE, Reason.WITHIN_BOUNDS, facts
    return Verdict.UNDECIDED, Reason.COLLECTING_EVIDENCE, facts


def _within(check: Check, value: float) -> bool:
    low = check.min is None or value >= check.min.number
    return low and (check.max is None or value <= check.max.number)


def _bounds(check: Check) -> str:
    low = "-inf" if check.min is None else f"{check.min.number:g}"
    high = "inf" if check.max is None else f"{check.max.number:g}"
    return f"[{low}, {high}]"
