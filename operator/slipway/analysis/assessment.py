"""The verdict on a candidate: every check's evidence is brought up to date and judged."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.analysis.availability import silence
from slipway.analysis.judging import Trial
from slipway.analysis.margins import margin
from slipway.analysis.reasons import Reason
from slipway.api.rollout import Analysis, Check
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
) -> Assessment:
    """Count the windows that have closed since and judge all evidence of the rollout.

    ``candidate`` and ``stable`` are revision names. ``counting_from`` (seconds since the epoch) is when the first
    weight was confirmed: windows start at or after it; with None nothing is counted and earlier evidence stands.
    Evidence of another rollout, or of a check whose definition has changed, is dropped; a check once harmful stays so.
    """
    if not analysis.checks:
        return Assessment((), Verdict.SAFE, Reason.NO_CHECKS, "no checks are asked for; hard breakers stay on")
    known = {entry.name: entry for entry in previous if entry.rollout == rollout_id}
    if counting_from is None:
        return _conclude(tuple(_standing(check, known.get(check.name), rollout_id) for check in analysis.checks))
    supported = sum(1 for check in analysis.checks if margin(check) is not None)
    trial = Trial(
        metrics=metrics,
        candidate=candidate,
        stable=stable,
        interval=analysis.interval.seconds,
        alpha=analysis.alpha,
        checks=max(supported, 1),
        counting_from=counting_from,
        now=now,
        silence=silence(metrics, candidate, stable, now),
    )
    return _conclude(tuple(_check(check, known.get(check.name), rollout_id, trial) for check in analysis.checks))


def _check(check: Check, before: CheckStatus | None, rollout_id: str, trial: Trial) -> CheckStatus:
    """The check's status with everything counted that can be."""
    tolerances = margin(check)
    standing = _standing(check, before, rollout_id)
    if tolerances is None or standing.verdict is Verdict.HARMFUL:
        return standing
    return trial.judge(check, tolerances, standing)


def _standing(check: Check, before: CheckStatus | None, rollout_id: str) -> CheckStatus:
    """The earlier evidence where it is still of this rollout and of this definition; else a clean slate."""
    tolerances = margin(check)
    definition = tolerances.definition if tolerances is not None else ""
    if before is not None and (before.verdict is Verdict.HARMFUL or before.definition == definition):
        return before
    if tolerances is None:
        reason, message = Reason.NOT_YET_SUPPORTED, f"checks of the kind {check.metric or 'query'} have yet to come"
    else:
        reason, message = Reason.COLLECTING_EVIDENCE, "evidence is counted from the first confirmed weight"
    return CheckStatus(name=check.name, rollout=rollout_id, definition=definition, reason=reason, message=message)


def _conclude(checks: tuple[CheckStatus, ...]) -> Assessment:
    """Harm in any check is harm, safety in all of them is safety."""
    by_weight = sorted(checks, key=lambda check: _WEIGHT.get(check.reason, 0))
    harmful = next((check for check in by_weight if check.verdict is Verdict.HARMFUL), None)
    if harmful is not None:
        return Assessment(checks, Verdict.HARMFUL, harmful.reason, _named(harmful), harmful.name)
    open_checks = [check for check in by_weight if check.verdict is not Verdict.SAFE]
    if not open_checks:
        return Assessment(checks, Verdict.SAFE, Reason.EVIDENCE_OF_SAFETY, "; ".join(map(_named, checks)))
    return Assessment(checks, Verdict.UNDECIDED, open_checks[0].reason, "; ".join(map(_named, open_checks)))


def _named(check: CheckStatus) -> str:
    return f"{check.name}: {check.message}"
