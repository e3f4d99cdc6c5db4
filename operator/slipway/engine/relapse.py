"""Whether a candidate that went one step back is still as bad: looked at on fresh evidence, after a while."""

from collections.abc import Sequence

from slipway.analysis.margins import margin
from slipway.api.judgement import Judgement
from slipway.api.rollout import Analysis
from slipway.api.status import CheckStatus, RolloutStatus, Verdict
from slipway.api.timestamps import parse_time

__all__ = ["PATIENCE", "evidence_id", "relapse"]

PATIENCE = 10
"""Evidence windows that a candidate has, after a step back, to do better."""
LEAST_REQUESTS = 20
LEAST_BAD = 2


def evidence_id(rollout: RolloutStatus) -> str:
    """What the evidence of a rollout is kept under: each step back begins anew."""
    return f"{rollout.id}.{rollout.step_downs}" if rollout.step_downs else rollout.id


def relapse(analysis: Analysis, rollout: RolloutStatus, checks: Sequence[CheckStatus], now: float) -> Judgement | None:
    """Harm, when the check that asked for the step back still shows a rate above its margin after the patience.

    The bare rates decide here, not the test: whether the candidate is harmful at all was settled by the test before.
    """
    begun = parse_time(rollout.evidence_from)
    if not rollout.step_downs or begun is None or now < begun + PATIENCE * analysis.interval.seconds:
        return None
    entry = next((item for item in checks if item.name == rollout.stepped_down_for), None)
    check = next((item for item in analysis.checks if item.name == rollout.stepped_down_for), None)
    tolerances = margin(check) if check is not None else None
    if entry is None or tolerances is None or entry.verdict is Verdict.SAFE:
        return None
    candidate, stable = entry.candidate, entry.stable
    if candidate.requests < LEAST_REQUESTS or candidate.bad < LEAST_BAD or stable.requests == 0:
        return None
    tolerated = max(tolerances.ratio * stable.bad / stable.requests, tolerances.value)
    if candidate.bad / candidate.requests <= tolerated:
        return None
    message = (
        f"{entry.name}: still {candidate.bad} of {candidate.requests} bad against {stable.bad} of {stable.requests}, "
        f"{PATIENCE} windows after the step back"
    )
    return Judgement(Verdict.HARMFUL, "StillHarmful", message, entry.name)
