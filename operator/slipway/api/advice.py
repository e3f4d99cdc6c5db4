"""Warnings: settings that are valid but hardly meant."""

from collections.abc import Iterator

from slipway.api.autoscaling import OnMissingMetrics, ScalingMode
from slipway.api.problems import Problem
from slipway.api.rollout import Check, MetricKind, Promotion, Rollout, Strategy
from slipway.api.spec import ModelDeploymentSpec

__all__ = ["questionable_settings"]

GENEROUS_ERROR_RATE = 0.01
"""A tolerated error rate above which safety and harm are likely to be true at once."""
GENEROUS_FACTOR = 2
"""The same for latency: times the share of slow requests that the quantile allows."""


def questionable_settings(spec: ModelDeploymentSpec) -> Iterator[Problem]:
    """Every setting that deserves a second look."""
    yield from _rollout(spec.rollout)
    for index, check in enumerate(spec.rollout.analysis.checks):
        yield from _margins(f"spec.rollout.analysis.checks[{index}].maxValue", check)
    autoscaling = spec.autoscaling
    if autoscaling.on_missing_metrics is OnMissingMetrics.AT_LEAST and not autoscaling.fallback_replicas:
        yield _warning("spec.autoscaling.fallbackReplicas", "AtLeast has no effect with 0; set the floor wanted")
    if autoscaling.mode is ScalingMode.OPERATOR and spec.replicas != 1:
        yield _warning("spec.replicas", "has no effect with autoscaling mode Operator; set minReplicas and maxReplicas")


def _rollout(rollout: Rollout) -> Iterator[Problem]:
    if rollout.strategy is not Strategy.CANARY and "steps" in rollout.model_fields_set:
        yield _warning("spec.rollout.steps", f"has no effect with strategy {rollout.strategy.value}, which has none")
    paused = any(step.pause is not None for step in rollout.steps)
    if not rollout.analysis.checks and rollout.promotion is Promotion.AUTOMATIC and not paused:
        yield _warning(
            "spec.rollout.analysis.checks",
            "without checks or pauses a candidate is promoted by time alone; keep a check or set promotion Manual",
        )
    if rollout.approved_version and rollout.promotion is Promotion.AUTOMATIC:
        yield _warning("spec.rollout.approvedVersion", "has no effect with promotion Automatic; set promotion Manual")
    for index, step in enumerate(rollout.steps):
        if step.pause is None and step.hold.seconds < rollout.analysis.interval.seconds:
            yield _warning(
                f"spec.rollout.steps[{index}].hold",
                f"is shorter than one evidence window ({rollout.analysis.interval})",
            )


def _margins(path: str, check: Check) -> Iterator[Problem]:
    """Harm is relative to stable, safety may be absolute: with a high absolute value both can hold."""
    if check.max_value is None:
        return
    generous = GENEROUS_ERROR_RATE
    if check.metric is MetricKind.LATENCY:
        generous = GENEROUS_FACTOR * (1 - check.quantile.number)
    if check.max_value.number > generous:
        yield _warning(
            path,
            f"a candidate far worse than stable still counts as safe below {check.max_value}, and harmful as well "
            "above maxRatio; harm wins. Choose a value near stable's own rate times maxRatio",
        )


def _warning(field: str, message: str) -> Problem:
    return Problem(field, "Questionable", message)
