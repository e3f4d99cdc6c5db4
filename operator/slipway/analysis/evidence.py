"""The sequential tests: e-processes that may be looked at after every window.

An e-process is the wealth of a gambler who bets against a hypothesis at fair or worse odds. Under the hypothesis it
exceeds ``1 / alpha`` with a chance of at most ``alpha``, ever (Ville's inequality). Everything here is a logarithm,
since wealth spans hundreds of orders of magnitude.

The test against the candidate keeps half of its wealth back and stakes it little by little at later windows, so that a
candidate which turns bad after a long good time is found as fast as a new one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "HARM_ALTERNATIVES",
    "SAFETY_WEIGHTS",
    "HarmTest",
    "SafetyTest",
    "WindowCounts",
    "harm_growth",
    "reserve",
    "safety_growth",
    "stake",
]

HARM_ALTERNATIVES = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Alternatives to the tolerated ratio, as multiples of it, with equal weights."""
ABSOLUTE_ALTERNATIVES = (0.02, 0.1, 0.25, 0.5, 0.75)
"""Alternatives to the tolerated rate, as shares of it."""
RELATIVE_ALTERNATIVES = (0.25, 0.5, 0.7, 0.9)
"""Alternatives to the tolerated ratio in the test for the candidate, as shares of it."""
ABSOLUTE_WEIGHT = 0.8
"""Wealth that bets on the absolute alternatives; the rest bets on the relative ones."""
SAFETY_WEIGHTS = (ABSOLUTE_WEIGHT / len(ABSOLUTE_ALTERNATIVES),) * len(ABSOLUTE_ALTERNATIVES) + (
    (1 - ABSOLUTE_WEIGHT) / len(RELATIVE_ALTERNATIVES),
) * len(RELATIVE_ALTERNATIVES)
SAFETY_CEILING = 10.0
"""Wealth of one safety alternative is cut at this multiple of the bound: bad news must be able to take a Safe back."""


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Requests and bad ones of both versions in one window."""

    candidate: int
    candidate_bad: int
    stable: int
    stable_bad: int


def harm_growth(counts: WindowCounts, ratio: float) -> tuple[float, ...]:
    """Log growth of each alternative against "the candidate's bad rate is at most ``ratio`` times stable's"."""
    return tuple(_split_growth(counts, ratio, factor) for factor in HARM_ALTERNATIVES)


def safety_growth(counts: WindowCounts, ratio: float, value: float) -> tuple[float, ...]:
    """Log growth of each alternative against "the bad rate is above ``value`` and above ``ratio`` times stable's".

    The hypothesis is that it exceeds both, so a bet against either is a fair one and so is any mixture of them.
    """
    good = counts.candidate - counts.candidate_bad
    absolute = tuple(
        counts.candidate_bad * math.log(share) + good * (math.log1p(-share * value) - math.log1p(-value))
        for share in ABSOLUTE_ALTERNATIVES
    )
    return absolute + tuple(_split_growth(counts, ratio, share) for share in RELATIVE_ALTERNATIVES)


def _split_growth(counts: WindowCounts, ratio: float, factor: float) -> float:
    """Log likelihood ratio of the split of bad requests between the versions: ``factor * ratio`` against ``ratio``."""
    if counts.candidate == 0 or counts.stable == 0:
        return 0.0
    held = math.log((ratio * counts.candidate + counts.stable) / (factor * ratio * counts.candidate + counts.stable))
    return counts.candidate_bad * math.log(factor) + (counts.candidate_bad + counts.stable_bad) * held


def stake(window: int) -> float:
    """Wealth that is newly staked at a window, counted from 1; all stakes sum to 1."""
    return 0.5 if window == 1 else 0.5 / (window * (window - 1))


def reserve(windows: int) -> float:
    """Wealth not yet staked after a number of windows."""
    return 1.0 if windows == 0 else 0.5 / windows


@dataclass(frozen=True, slots=True)
class HarmTest:
    """The test against the candidate for one check."""

    ratio: float
    bound: float
    """Wealth at which harm is found: checks / alpha."""

    @property
    def cap(self) -> float:
        """Largest log growth per window: a burst in one window never suffices, however large it is."""
        return math.log(self.bound) / 2

    def advance(self, logs: Sequence[float], window: int, counts: WindowCounts) -> tuple[float, ...]:
        """Log wealth of each alternative after the window of that number, counted from 1 over windows with requests."""
        fresh = math.log(stake(window))
        growth = harm_growth(counts, self.ratio)
        before = logs or (-math.inf,) * len(growth)
        return tuple(_log_add(log, fresh) + min(grown, self.cap) for log, grown in zip(before, growth, strict=True))

    def wealth(self, logs: Sequence[float], windows: int) -> float:
        """The e-value against the candidate, the reserve included."""
        return reserve(windows) + sum(math.exp(min(log, 700.0)) for log in logs) / len(HARM_ALTERNATIVES)


@dataclass(frozen=True, slots=True)
class SafetyTest:
    """The test for the candidate for one check."""

    ratio: float
    value: float
    bound: float
    """Wealth at which safety is found: 1 / alpha."""

    def advance(self, logs: Sequence[float], counts: WindowCounts) -> tuple[float, ...]:
        """Log wealth of each alternative after a window."""
        growth = safety_growth(counts, self.ratio, self.value)
        before = logs or (0.0,) * len(growth)
        return tuple(
            min(log + grown, math.log(SAFETY_CEILING * self.bound / weight))
            for log, grown, weight in zip(before, growth, SAFETY_WEIGHTS, strict=True)
        )

    def wealth(self, logs: Sequence[float]) -> float:
        """The e-value for the candidate."""
        if not logs:
            return 1.0
        return sum(weight * math.exp(min(log, 700.0)) for log, weight in zip(logs, SAFETY_WEIGHTS, strict=True))


def _log_add(left: float, right: float) -> float:
    """``log(exp(left) + exp(right))``."""
    high, low = max(left, right), min(left, right)
    return high + math.log1p(math.exp(low - high)) if high > -math.inf else high
