"""Rivals by name, each with a target matched to what Slipway's run costs."""

import functools
from collections.abc import Callable, Mapping, Sequence

from slipway.api.autoscaling import Autoscaling
from slipway.api.errors import SlipwayError
from slipway.simulation.load import Load
from slipway.simulation.replay import Conditions, Policy, Result, matched
from slipway.simulation.rivals import HpaPolicy, KedaPolicy, KpaPolicy

__all__ = ["RIVALS", "against", "chosen_rivals"]

Build = Callable[[float, int, int], Policy]
"""Gives a policy for a target, a minimum and a maximum of replicas."""

RIVALS: Mapping[str, Build] = {
    "hpa": HpaPolicy,
    "keda": KedaPolicy,
    "kpa": KpaPolicy,
}


def chosen_rivals(text: str) -> tuple[str, ...]:
    """Names from ``hpa,keda,kpa``; raises SlipwayError for others."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in RIVALS]
    if unknown:
        raise SlipwayError(f"--against: {', '.join(unknown)} is not among {', '.join(RIVALS)}")
    return names


def against(
    own: Result, names: Sequence[str], load: Load, conditions: Conditions, scaling: Autoscaling
) -> list[Result]:
    """One run per rival at the cost of Slipway's own run."""
    low, high = scaling.min_replicas, scaling.max_replicas
    results = []
    for name in names:
        build = RIVALS[name]
        start = scaling.qps.target or conditions.capacity / 2
        bounded = functools.partial(_bounded, build, low, high)
        results.append(matched(bounded, load, conditions, own.pod_hours, start=start))
    return results


def _bounded(build: Build, low: int, high: int, target: float) -> Policy:
    return build(target, low, high)
