"""Why a ModelDeployment is as it is: conditions, evidence, scaling decisions, history, in words."""

from collections.abc import Iterable, Mapping
from typing import Any

from slipway.api.reasons import REASONS
from slipway.api.status import CheckStatus, Condition, Counts, ModelDeploymentStatus
from slipway.api.validation import validate
from slipway.cli.columns import ago, indented, table
from slipway.scaling import ScalingReason

__all__ = ["explain_lines"]

DECISIONS = 10
ROLLOUTS = 5


def explain_lines(obj: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> list[str]:
    """Lines for ``slipway explain``, below those of the overview."""
    lines: list[str] = []
    lines += _section("Conditions", _conditions(status.conditions, now))
    lines += _section("Evidence", [line for check in status.analysis for line in _check(check, now)])
    lines += _section("Replicas", _scaling(status, now))
    lines += _section("Earlier rollouts", _history(status, now))
    lines += _section("Last action", _last_action(status, now))
    outcome = validate(obj)
    lines += _section("Spec", [str(problem) for problem in (*outcome.problems, *outcome.warnings)])
    return lines


def _section(title: str, lines: Iterable[str]) -> list[str]:
    content = list(lines)
    return ["", title, *indented(content)] if content else []


def _conditions(conditions: Iterable[Condition], now: float) -> list[str]:
    rows = []
    remedies: dict[str, str] = {}
    for entry in conditions:
        rows.append((entry.type, entry.status, ago(entry.last_transition_time, now), entry.reason, entry.message))
        text = _meaning(entry.reason)
        if text:
            remedies.setdefault(entry.reason, f"{entry.reason}: {text}")
    return [*table(("TYPE", "STATUS", "FOR", "REASON", "MESSAGE"), rows), "", *remedies.values()] if rows else []


def _meaning(reason: str) -> str:
    """A reason in a sentence, with what to do; empty for one that nobody knows."""
    known = REASONS.get(reason)
    if known is not None:
        return f"{known.meaning} {known.remedy}".rstrip()
    return next((entry.meaning for entry in ScalingReason if entry == reason), "")


def _check(check: CheckStatus, now: float) -> list[str]:
    lines = [f"{check.name}: {check.verdict} ({check.reason}){f': {check.message}' if check.message else ''}"]
    lines.append(f"  candidate {_counts(check.candidate)}, stable {_counts(check.stable)}")
    parts = [f"{check.windows} windows with requests"]
    if check.evidence is not None:
        parts.append(f"evidence against the candidate {check.evidence}")
    if check.requests_needed is not None:
        parts.append(f"about {check.requests_needed} more requests to the candidate needed")
    if check.window:
        parts.append(f"counted up to {ago(check.window, now)} ago")
    return [*lines, f"  {'; '.join(parts)}"]


def _counts(counts: Counts) -> str:
    share = f" ({100 * counts.bad / counts.requests:.3g} %)" if counts.requests else ""
    return f"{counts.bad} bad of {counts.requests}{share}"


def _scaling(status: ModelDeploymentStatus, now: float) -> list[str]:
    rows = [
        (f"{ago(entry.at, now)} ago", entry.version, f"{entry.from_} to {entry.to}", entry.reason, entry.message)
        for entry in reversed(status.scaling[-DECISIONS:])
    ]
    return table(("WHEN", "VERSION", "REPLICAS", "REASON", "NUMBERS"), rows) if rows else []


def _history(status: ModelDeploymentStatus, now: float) -> list[str]:
    rows = [
        (
            entry.id,
            f"{entry.from_ or 'nothing'} to {entry.to}",
            entry.outcome,
            f"{ago(entry.finished_at, now)} ago",
            entry.by or "-",
            entry.evidence,
        )
        for entry in reversed(status.history[-ROLLOUTS:])
    ]
    return table(("ROLLOUT", "COURSE", "OUTCOME", "ENDED", "BY", "EVIDENCE"), rows) if rows else []


def _last_action(status: ModelDeploymentStatus, now: float) -> list[str]:
    answer = status.last_action
    if not answer.id:
        return []
    return [f"{answer.verb}: {answer.result} {ago(answer.at, now)} ago: {answer.message}"]
