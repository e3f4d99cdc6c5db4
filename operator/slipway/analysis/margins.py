"""What a check counts as bad, and how much of it is tolerated."""

from dataclasses import dataclass

from slipway.api.rollout import Check, MetricKind

__all__ = ["Margin", "margin"]

ERROR_RATIO = 1.5
LATENCY_RATIO = 1.1
ERROR_VALUE = 0.001


@dataclass(frozen=True, slots=True)
class Margin:
    """The tolerances of one check."""

    metric: MetricKind
    ratio: float
    """Tolerated ratio of the candidate's bad rate to stable's: above it lies harm."""
    value: float
    """Tolerated bad rate of the candidate, whatever stable does."""
    threshold: float | None
    """Seconds above which a request is slow; None counts errors."""

    @property
    def definition(self) -> str:
        """The margin in words; evidence belongs to one definition."""
        bad = "5xx" if self.threshold is None else f"slower than {self.threshold:g}s"
        return f"{bad}; ratio {self.ratio:g}; value {self.value:g}"


def margin(check: Check) -> Margin | None:
    """The tolerances of a check with their defaults; None for a check that is judged in another way."""
    match check.metric:
        case MetricKind.ERROR_RATE:
            value = check.max_value.number if check.max_value is not None else ERROR_VALUE
            return Margin(check.metric, check.max_ratio or ERROR_RATIO, _probability(value), None)
        case MetricKind.LATENCY if check.threshold is not None:
            value = check.max_value.number if check.max_value is not None else 1 - check.quantile.number
            return Margin(check.metric, check.max_ratio or LATENCY_RATIO, _probability(value), check.threshold.seconds)
        case _:
            return None


def _probability(value: float) -> float:
    """Keep a tolerated rate inside (0, 1), where its logarithms are finite."""
    return min(max(round(value, 12), 1e-9), 0.999)
