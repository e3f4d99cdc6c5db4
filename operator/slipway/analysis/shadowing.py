"""The check of answers to repeated requests: is the candidate's model as good as saying what stable's says?"""

import math
from functools import partial

from slipway.analysis.agreement import AgreementEvidence
from slipway.analysis.judging import FEWEST_WINDOWS, Trial
from slipway.analysis.ledger import Ledger
from slipway.analysis.reasons import Reason
from slipway.analysis.windows import Source, closed_windows, shadow_series
from slipway.api.rollout import Analysis, Check, MetricKind
from slipway.api.samples import ShadowPair, ShadowResult
from slipway.api.scalars import DecimalString
from slipway.api.status import CheckStatus, Verdict

__all__ = ["agreement_definition", "judge_agreement", "with_agreement"]

MIN_VALUE = 0.99
"""Smallest tolerated share of equal answers where the check names none."""
LARGEST_LOG = 700.0


def with_agreement(analysis: Analysis) -> Analysis:
    """The analysis of a strategy that compares answers: with a check of them, even where the user names none.

    No checks at all stay none: that turns every comparison off.
    """
    if not analysis.checks or any(check.metric is MetricKind.SHADOW_AGREEMENT for check in analysis.checks):
        return analysis
    taken = {check.name for check in analysis.checks}
    name = "agreement"
    while name in taken:
        name = f"shadow-{name}"
    implied = Check(name=name, metric=MetricKind.SHADOW_AGREEMENT)
    return analysis.model_copy(update={"checks": (*analysis.checks, implied)})


def agreement_definition(check: Check) -> str:
    """Evidence belongs to one margin."""
    return f"answers differ; tolerance {_tolerance(check):g}"


def judge_agreement(trial: Trial, check: Check, before: CheckStatus) -> CheckStatus:
    """The check's status after the windows that have closed since."""
    ledger = Ledger.of(before)
    if trial.metrics.available:
        pairs = (ShadowPair.CANDIDATE, ShadowPair.SELF)
        arms = tuple(
            Source(trial.stable, partial(shadow_series, candidate=trial.candidate, pair=pair)) for pair in pairs
        )
        for window in closed_windows(trial.metrics, (arms[0], arms[1]), trial.span(ledger)):
            ledger = ledger.tally(window)
    evidence = AgreementEvidence(ledger.candidate, ledger.stable, _tolerance(check))
    harm_bound, safety_bound = trial.checks / trial.alpha, 1 / trial.alpha
    verdict, reason, message = _verdict(trial, check, ledger, evidence, harm_bound, safety_bound)
    need = evidence.comparisons_needed(harm_bound, safety_bound) if verdict is Verdict.UNDECIDED else None
    if reason is Reason.COLLECTING_EVIDENCE and need is not None:
        need = max(need, check.min_samples - ledger.candidate.requests)
        message += f"; about {need} more comparisons needed"
    update = {
        "verdict": verdict,
        "reason": reason,
        "message": message,
        "evidence": DecimalString(f"{_wealth(evidence.harm):.4g}".replace("e+", "e")),
        "requests_needed": need,
    }
    return ledger.write(before).model_copy(update=update)


def _verdict(
    trial: Trial,
    check: Check,
    ledger: Ledger,
    evidence: AgreementEvidence,
    harm_bound: float,
    safety_bound: float,
) -> tuple[Verdict, Reason, str]:
    against, proof = _wealth(evidence.harm), _wealth(evidence.safety)
    facts = (
        f"candidate differs in {_share(ledger.candidate.bad, ledger.candidate.requests)},"
        f" stable from itself in {_share(ledger.stable.bad, ledger.stable.requests)};"
        f" evidence of harm {against:.3g} of {harm_bound:.4g}, of safety {proof:.3g} of {safety_bound:.4g}"
    )
    enough = ledger.windows >= FEWEST_WINDOWS and ledger.candidate.requests >= check.min_samples
    if enough and against >= harm_bound and ledger.bad_windows >= FEWEST_WINDOWS:
        return Verdict.HARMFUL, Reason.HARM_DETECTED, facts
    if trial.silence is not None:
        return Verdict.UNDECIDED, trial.silence.reason, trial.silence.message
    if enough and against < harm_bound and proof >= safety_bound:
        return Verdict.SAFE, Reason.EVIDENCE_OF_SAFETY, facts
    if not ledger.candidate.requests:
        return Verdict.UNDECIDED, Reason.NO_COMPARISONS, _why_none(trial)
    return Verdict.UNDECIDED, Reason.COLLECTING_EVIDENCE, facts


def _why_none(trial: Trial) -> str:
    """Why nothing has been compared so far, as far as the counters tell."""
    mine = [one for one in trial.metrics.of(trial.stable).shadows if one.candidate == trial.candidate]
    if not mine:
        return "stable's servers do not repeat requests yet: they are told by a volume, which may take a minute"
    dropped = sum(
        one.samples[-1][1] for one in mine if one.pair is ShadowPair.CANDIDATE and one.result is ShadowResult.DROPPED
    )
    if dropped:
        return f"{round(dropped)} repeated requests got no answer from the candidate: it is busy or cannot be reached"
    return "no answers have been compared: stable has had no requests of the sample"


def _share(bad: int, total: int) -> str:
    return f"{bad} of {total} answers" if total else "no answers yet"


def _wealth(log: float) -> float:
    return math.exp(min(log, LARGEST_LOG))


def _tolerance(check: Check) -> float:
    return round(1 - (check.min_value.number if check.min_value is not None else MIN_VALUE), 12)
