"""The verdict on a candidate: every check's evidence is brought up to date and judged."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slipway.analysis.availability import silence
from slipway.analysis.expressions import Subject, expression_definition, judge_expression
from slipway.analysis.judging import Trial
from slipway.analysis.margins import margin
from slipway.analysis.reasons import Reason
from slipway.analysis.shadowing import agreement_definition, judge_agreement
from slipway.api.rollout import Analysis, Check, MetricKind
from slipway.api.samples import MetricsView
from slipway.api.status import CheckStatus, Verdict

__all__ = ["Assessment", "assess"]

_WEIGHT: dict[str, int] = {reason: place for place, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Assessment:
    """What the evidence says of the candidate."""

    checks: tuple[CheckStatus, ...]
    """One per check of the spec, with the evidence to go on from."""
    verdict: Verdict
    reason: str
    message: str
    harmful: str = ""
    """Name of the check that found harm."""


def assess(
    analysis: Analysis,
    previous: Sequence[CheckStatus],
    *,
    rollout_id: str,
    candidate: str,
    stable: str,
    metrics: MetricsView,
    counting_from: float | None,
    now: float,
    subject: Subject | None = None,
    served: bool = True,
) -> Assessment:
    """Count the windows that have closed since and judge all evidence of the rollout.

    ``candidate`` and ``stable`` are revision names. ``counting_from`` (seconds since the epoch) is when the first
    weight was confirmed, or requests were first repeated: windows start at or after it; with None nothing is counted
    and earlier evidence stands. ``subject`` fills the placeholders of the user's own expressions. Without
    ``served`` the candidate has repeated requests only: checks on served ones take no part. Evidence of another
    rollout, or of a check whose definition has changed, is dropped; a check once harmful stays so.
    """
    if not analysis.checks:
        return Assessment((), Verdict.SAFE, Reason.NO_CHECKS, "no checks are asked for; hard breakers stay on")
    known = {entry.name: entry for entry in previous if entry.rollout == rollout_id}
    if counting_from is None:
        return _conclude(tuple(_standing(check, known.get(check.name), rollout_id) for check in analysis.checks))
    tests = sum(1 for check in analysis.checks if not check.query)
    trial = Trial(
        metrics=metrics,
        candidate=candidate,
        stable=stable,
        interval=analysis.interval.seconds,
        alpha=analysis.alpha,
        checks=max(tests, 1),
        counting_from=counting_from,
        now=now,
        silence=silence(metrics, candidate, stable, now),
    )
    about = subject or Subject(revision=candidate)
    checks = tuple(
        _check(check, known.get(check.name), rollout_id, trial, about)
        if served or _needs_no_traffic(check)
        else _standing(check, known.get(check.name), rollout_id)
        for check in analysis.checks
    )
    taking_part = {check.name for check in analysis.checks if served or _needs_no_traffic(check)}
    return replace(_conclude(tuple(check for check in checks if check.name in taking_part)), checks=checks)


def _needs_no_traffic(check: Check) -> bool:
    """Whether a check can say something of a candidate that serves nobody."""
    return bool(check.query) or check.metric is MetricKind.SHADOW_AGREEMENT


def _check(check: Check, before: CheckStatus | None, rollout_id: str, trial: Trial, subject: Subject) -> CheckStatus:
    """The check's status with everything counted that can be."""
    standing = _standing(check, before, rollout_id)
    if standing.verdict is Verdict.HARMFUL:
        return standing
    if check.query:
        return judge_expression(trial, check, standing, subject)
    tolerances = margin(check)
    return judge_agreement(trial, check, standing) if tolerances is None else trial.judge(check, tolerances, standing)


def _definition(check: Check) -> str:
    if check.query:
        return expression_definition(check)
    tolerances = margin(check)
    return agreement_definition(check) if tolerances is None else tolerances.definition


def _standing(check: Check, before: CheckStatus | None, rollout_id: str) -> CheckStatus:
    """The earlier evidence where it is still of this rollout and of this definition; else a clean slate."""
    definition = _definition(check)
    if before is not None and (before.verdict is Verdict.HARMFUL or before.definition == definition):
        return before
    return CheckStatus(
        name=check.name,
        rollout=rollout_id,
        definition=definition,
        reason=Reason.COLLECTING_EVIDENCE,
        message="evidence is counted from the first confirmed weight",
    )


def _conclude(checks: tuple[CheckStatus, ...]) -> Assessment:
    """Harm in any check is harm, safety in all of them is safety."""
    by_weight = sorted(checks, key=lambda check: _WEIGHT.get(check.reason, 0))
    harmful = next((check for check in by_weight if check.verdict is Verdict.HARMFUL), None)
    if harmful is not None:
        return Assessment(checks, Verdict.HARMFUL, harmful.reason, _named(harmful), harmful.name)
    open_checks = [check for check in by_weight if check.verdict is not Verdict.SAFE]
    if not checks:
        return Assessment(checks, Verdict.UNDECIDED, Reason.NO_COMPARISONS, "no check looks at repeated requests")
    if not open_checks:
        return Assessment(checks, Verdict.SAFE, Reason.EVIDENCE_OF_SAFETY, "; ".join(map(_named, checks)))
    return Assessment(checks, Verdict.UNDECIDED, open_checks[0].reason, "; ".join(map(_named, open_checks)))


def _named(check: CheckStatus) -> str:
    return f"{check.name}: {check.message}"
