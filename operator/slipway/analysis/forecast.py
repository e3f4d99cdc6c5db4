"""How many more requests of the candidate a verdict is expected to need, if the rates seen so far go on."""

import math

from slipway.analysis.evidence import SAFETY_WEIGHTS, HarmTest, SafetyTest, WindowCounts, harm_growth, safety_growth
from slipway.analysis.ledger import Ledger

__all__ = ["requests_needed"]

FARTHEST = 10_000_000


def requests_needed(ledger: Ledger, harm: HarmTest, safety: SafetyTest, min_samples: int) -> int | None:
    """The smaller one of the needs of both tests; None where the rates seen lead to neither verdict.

    Before any request was seen the answer is that of a candidate without a single bad request.
    """
    seen = WindowCounts(
        max(ledger.candidate.requests, 1), ledger.candidate.bad, ledger.stable.requests, ledger.stable.bad
    )
    needs = [
        _need(log + math.log(weight), growth / seen.candidate, math.log(safety.bound))
        for log, weight, growth in zip(
            ledger.safe or (0.0,) * len(SAFETY_WEIGHTS),
            SAFETY_WEIGHTS,
            safety_growth(seen, safety.ratio, safety.value),
            strict=True,
        )
    ]
    if ledger.harm:
        share = math.log(len(ledger.harm))
        needs += [
            _need(log - share, growth / seen.candidate, math.log(harm.bound))
            for log, growth in zip(ledger.harm, harm_growth(seen, harm.ratio), strict=True)
        ]
    possible = [need for need in needs if need is not None]
    if not possible:
        return None
    return max(min(*possible, FARTHEST), min_samples - ledger.candidate.requests, 1)


def _need(log: float, growth: float, bound: float) -> int | None:
    """Requests until ``log`` has grown to ``bound``."""
    return math.ceil(min(max(bound - log, 0.0) / growth, FARTHEST)) if growth > 0 else None
