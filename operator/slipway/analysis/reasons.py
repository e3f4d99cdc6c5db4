"""Reason codes of verdicts."""

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Why a check says what it says; the first ones weigh more when several checks are undecided."""

    HARM_DETECTED = "HarmDetected"
    """The evidence against the candidate has reached its bound."""
    OUT_OF_BOUNDS = "OutOfBounds"
    """The value of the user's expression was out of its bounds in two windows running."""
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    """Prometheus did not answer, or knows nothing of the pods."""
    METRICS_STALE = "MetricsStale"
    """The newest scrape is too old."""
    NO_HISTOGRAM = "NoHistogram"
    """Requests are counted, and nobody measures how long they take."""
    NO_VALUE = "NoValue"
    """The user's expression has no value."""
    NO_COMPARISONS = "NoComparisons"
    """No answers to repeated requests have been compared."""
    NO_CANARY_TRAFFIC = "NoCanaryTraffic"
    """Stable is asked, the candidate is not, although it has weight."""
    NO_STABLE_BASELINE = "NoStableBaseline"
    """The candidate is asked, stable is not: there is nothing to compare with."""
    NO_TRAFFIC = "NoTraffic"
    """Nobody asks either version."""
    COLLECTING_EVIDENCE = "CollectingEvidence"
    """Requests are counted and do not suffice yet."""
    EVIDENCE_OF_SAFETY = "EvidenceOfSafety"
    """The evidence for the candidate has reached its bound."""
    WITHIN_BOUNDS = "WithinBounds"
    """The value of the user's expression is within its bounds."""
    NO_CHECKS = "NoChecks"
    """The comparison is turned off."""
