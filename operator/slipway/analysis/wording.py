"""Evidence in words."""

from slipway.analysis.ledger import Ledger
from slipway.api.scalars import format_duration
from slipway.api.status import Counts

__all__ = ["facts", "rounded_bound"]


def facts(ledger: Ledger, against: tuple[float, float], safe: tuple[float, float]) -> str:
    """The numbers that a verdict rests on; each test as its evidence and the bound at which it decides."""
    return (
        f"candidate {_share(ledger.candidate)}, stable {_share(ledger.stable)};"
        f" evidence of harm {against[0]:.3g} of {against[1]:.4g}, of safety {safe[0]:.3g} of {safe[1]:.4g}"
    )


def rounded_bound(threshold: float, bound: float) -> str:
    """Says that a latency threshold (seconds) was rounded up to a bound of the histogram."""
    return f"threshold {format_duration(threshold)} rounded up to the histogram's bound {format_duration(bound)}"


def _share(counts: Counts) -> str:
    if not counts.requests:
        return "no requests"
    return f"{counts.bad} bad of {counts.requests} ({100 * counts.bad / counts.requests:.3g} %)"
