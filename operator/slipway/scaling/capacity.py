"""How many requests per second replicas carry, for sizing a revision before it gets its weight."""

import math

__all__ = ["SAFE_SHARE", "replicas_for", "whole"]

SAFE_SHARE = 0.8
"""``qps.target`` is taken as this share of what a replica can do at most: mu = target / 0.8."""
_ROUNDING = 1e-9


def replicas_for(demand: float, capacity: float | None, *, minimum: int, maximum: int) -> int | None:
    """Replicas that carry ``demand`` requests per second, within bounds; ``None`` when capacity is unknown."""
    if capacity is None:
        return None
    return min(max(whole(demand / capacity), minimum), maximum)


def whole(replicas: float) -> int:
    """The number of replicas that covers a fractional need: 2.0 stays 2 even if computed as 2.0000000001."""
    return max(0, math.ceil(replicas - _ROUNDING))
