"""Quantiles of a histogram, for display only: values between two bounds are guesses."""

import math
from collections.abc import Mapping

__all__ = ["quantile"]


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """The value in seconds below which ``share`` of the requests lie, interpolated; None without requests.

    ``buckets`` counts the requests of at most each bound; a value beyond the last finite bound is given as that bound.
    """
    total = buckets.get(math.inf, 0.0)
    if total <= 0:
        return None
    below, lower = 0.0, 0.0
    for bound in sorted(bound for bound in buckets if math.isfinite(bound)):
        count = buckets[bound]
        if count >= share * total:
            inside = count - below
            return lower + (bound - lower) * (share * total - below) / inside if inside > 0 else bound
        below, lower = count, bound
    return lower if lower > 0 else None
