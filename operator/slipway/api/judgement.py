"""What the rollout is told of its candidate, whoever found it out."""

from dataclasses import dataclass

from slipway.api.status import Verdict

__all__ = ["NO_JUDGEMENT", "Judgement"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on the candidate with its reason."""

    verdict: Verdict
    reason: str
    """CamelCase word, such as CollectingEvidence or CrashLoop."""
    message: str = ""
    check: str = ""
    """Name of the check that decided, if one did."""


NO_JUDGEMENT = Judgement(Verdict.UNDECIDED, "NotStarted", "the candidate has no traffic yet")
