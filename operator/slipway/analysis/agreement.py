"""Evidence on how often the candidate's answers to repeated requests differ from stable's.

Stable's own second answers are the noise: a model that samples, or whose kernels round differently from batch to
batch, does not always agree with itself. Tolerated is a share of differing answers of ``tolerance`` beyond that noise.

The candidate's rate p and the noise q are both unknown, so each hypothesis is a set of pairs: p - q at most (harm) or
at least (safety) the tolerance. The wealth is that of a mixture of bets on both rates, divided by the best that any
pair within the hypothesis could have foreseen. Under the hypothesis it exceeds ``1 / alpha`` with a chance of at most
``alpha``, whenever one looks. It depends on the counts alone, which are in the status.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from slipway.api.status import Counts

__all__ = ["AgreementEvidence"]

ITERATIONS = 80
FARTHEST = 10_000_000


@dataclass(frozen=True, slots=True)
class AgreementEvidence:
    """Comparisons so far; ``bad`` are answers that differ, or errors where stable had an answer."""

    candidate: Counts
    noise: Counts
    """Stable's second answers compared with its first."""
    tolerance: float
    """Tolerated share of differing answers beyond the noise, above 0 and below 1."""

    @property
    def harm(self) -> float:
        """Log wealth against "p exceeds q by at most the tolerance"."""
        arms = self._arms
        return _foreseen(arms) - _best(arms, self.tolerance, at_most=True)

    @property
    def safety(self) -> float:
        """Log wealth against "p exceeds q by at least the tolerance"."""
        arms = self._arms
        return _foreseen(arms) - _best(arms, self.tolerance, at_most=False)

    def comparisons_needed(self, harm_bound: float, safety_bound: float) -> int | None:
        """Further comparisons with the candidate until a bound (wealth) is reached, if the rates seen go on.

        None where they lead to neither. Before any, those of a candidate and a stable that never differ.
        """
        seen = self.candidate.requests
        arms = self._arms if seen else ((0.0, 1.0), (0.0, 1.0))
        start = max(seen, 1)
        factor = 1.0
        while factor * start <= FARTHEST:
            scaled = tuple((bad * factor, total * factor) for bad, total in arms)
            wealth = _foreseen(scaled)
            if wealth - _best(scaled, self.tolerance, at_most=True) >= math.log(harm_bound) or wealth - _best(
                scaled, self.tolerance, at_most=False
            ) >= math.log(safety_bound):
                return max(1, math.ceil(factor * start) - seen)
            factor *= 1.1
        return None

    @property
    def _arms(self) -> "Arms":
        return tuple((float(counts.bad), float(counts.requests)) for counts in (self.candidate, self.noise))


Arms = tuple[tuple[float, float], ...]
"""Bad ones and all, of the candidate and of the noise."""


def _foreseen(arms: Arms) -> float:
    return sum(_mixture(bad, total) for bad, total in arms)


def _mixture(bad: float, total: float) -> float:
    """Log probability of the answers under a mixture: half on a rate of 0, half spread over all rates (Jeffreys)."""
    good = total - bad
    spread = _log_beta(bad + 0.5, good + 0.5) - _log_beta(0.5, 0.5)
    return math.log(0.5 + 0.5 * math.exp(spread)) if bad == 0 else math.log(0.5) + spread


def _log_beta(left: float, right: float) -> float:
    return math.lgamma(left) + math.lgamma(right) - math.lgamma(left + right)


def _best(arms: Arms, tolerance: float, *, at_most: bool) -> float:
    """Log probability under the likeliest pair of rates within the hypothesis."""
    rates = [bad / total if total else None for bad, total in arms]
    # An arm without comparisons takes whatever rate suits the other one best.
    p, q = rates
    if p is None or q is None:
        p, q = _free(p, q, tolerance, at_most)
    if (p - q <= tolerance) if at_most else (p - q >= tolerance):
        return _likelihood(p, *arms[0]) + _likelihood(q, *arms[1])
    return _peak(lambda rate: _likelihood(rate + tolerance, *arms[0]) + _likelihood(rate, *arms[1]), 1 - tolerance)


def _free(p: float | None, q: float | None, tolerance: float, at_most: bool) -> tuple[float, float]:
    if p is None:
        known = q or 0.0
        return (known, known) if at_most else (1.0, known)
    return (p, p) if at_most else (p, 0.0)


def _likelihood(rate: float, bad: float, total: float) -> float:
    """Log probability of the answers at a rate of bad ones."""
    good = total - bad
    if (bad and rate <= 0) or (good and rate >= 1):
        return -math.inf
    return (bad * math.log(rate) if bad else 0.0) + (good * math.log1p(-rate) if good else 0.0)


def _peak(function: Callable[[float], float], end: float) -> float:
    """The largest value of a concave function between 0 and ``end``."""
    low, high = 0.0, end
    for _ in range(ITERATIONS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if function(left) < function(right):
            low = left
        else:
            high = right
    return max(function(low), function(high), function((low + high) / 2))
