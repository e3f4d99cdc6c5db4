"""Measured values shown in status: written when they have changed visibly, so that noise is no write.

Each status write is an event for every watcher and a line in somebody's audit log; a steady load must cause none.
"""

from slipway.api.observed import Observed
from slipway.api.samples import MetricsView, RevisionMetrics, Sample
from slipway.api.scalars import DecimalString, format_duration
from slipway.api.status import ModelDeploymentStatus, VersionStatus

__all__ = ["with_display"]

VISIBLE_CHANGE = 0.2
"""Relative change from which a shown value is replaced."""
VISIBLE_POINTS = 2.0
"""Change in percentage points from which an observed weight is replaced."""


def with_display(status: ModelDeploymentStatus, observed: Observed, metrics: MetricsView) -> ModelDeploymentStatus:
    """Bring the shown values of each version up to date; a value that is not known any more is taken away."""
    if not metrics.available:
        return status
    # Shares of a whole that is known only in part would be too large.
    whole = all(metrics.of(entry.revision).arrivals.ok for entry in status.versions if entry.weight.applied > 0)
    total = sum(_arrivals(metrics.of(entry.revision)) for entry in status.versions) if whole else 0.0
    entries = tuple(_entry(entry, metrics.of(entry.revision), total) for entry in status.versions)
    return status.model_copy(update={"versions": entries})


def _arrivals(metrics: RevisionMetrics) -> float:
    return metrics.arrivals.value if metrics.arrivals.ok else 0.0


def _entry(entry: VersionStatus, metrics: RevisionMetrics, total: float) -> VersionStatus:
    observed_weight = entry.weight.observed
    if total > 0:
        share = DecimalString.of(100 * _arrivals(metrics) / total, 3)
        moved = observed_weight is None or abs(share.number - observed_weight.number) >= VISIBLE_POINTS
        observed_weight = share if moved or share.number in (0, 100) else observed_weight
    else:
        observed_weight = None
    return entry.model_copy(
        update={
            "weight": entry.weight.model_copy(update={"observed": observed_weight}),
            "qps": _shown(entry.qps, metrics.arrivals),
            "error_rate": _shown(entry.error_rate, metrics.error_rate),
            "gpu_utilization": _shown(entry.gpu_utilization, metrics.gpu_utilization),
            "gpu_source": metrics.gpu_source or entry.gpu_source,
            "latency_p99": _shown_duration(entry.latency_p99, metrics.latency_p99),
        }
    )


def _shown(before: DecimalString | None, sample: Sample) -> DecimalString | None:
    if not sample.ok:
        return None
    if before is not None and not _visible(before.number, sample.value):
        return before
    return DecimalString.of(sample.value, 3)


def _shown_duration(before: str, sample: Sample) -> str:
    if not sample.ok:
        return ""
    text = format_duration(sample.value)
    if before.endswith("ms") and text.endswith("ms") and not _visible(float(before[:-2]), sample.value * 1000):
        return before
    return text


def _visible(before: float, after: float) -> bool:
    return abs(after - before) > VISIBLE_CHANGE * max(abs(before), abs(after))
