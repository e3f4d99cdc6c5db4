"""The operator's own metrics, in a registry of their own.

Every metric is declared here and nowhere else; ``table`` writes the reference of them in Markdown. No label names a
ModelDeployment, so the number of series does not grow with the number of objects.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from slipway.api.status import ModelDeploymentStatus
from slipway.api.timestamps import parse_time

__all__ = ["Telemetry", "table"]

# A second series for each one, with the time it was created, that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

M = TypeVar("M", Counter, Gauge, Histogram)

_FAST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class Telemetry:
    """All metrics of one operator process."""

    def __init__(self, version: str = "") -> None:
        self.registry = CollectorRegistry()
        self._metrics: list[Counter | Gauge | Histogram] = []
        self.reconciles = self._counter(
            "reconciles", "Reconciles by result: ok, conflict, gone, restored, error.", ("result",)
        )
        self.reconcile_seconds = self._histogram("reconcile_duration_seconds", "Time of one reconcile.", _FAST)
        self.queue_depth = self._gauge("queue_depth", "Keys that are ready and not yet taken by a worker.")
        self.queue_seconds = self._histogram("queue_duration_seconds", "Time from ready to taken of a key.", _FAST)
        self.api_calls = self._counter(
            "api_requests", "Calls to the API server; code 0 means no answer.", ("method", "resource", "code")
        )
        self.api_seconds = self._histogram("api_request_duration_seconds", "Time of a call to the API server.", _FAST)
        self.watch_events = self._counter("watch_events", "Watch events by kind.", ("resource",))
        self.cached = self._gauge("cached_objects", "Objects in the cache by kind.", ("resource",))
        self.resync_age = self._gauge("resync_age_seconds", "Seconds since the last complete list of all kinds.")
        self.loop_lag = self._gauge("loop_lag_seconds", "How late the event loop runs what is due.")
        self.leading = self._gauge("leader", "1 while this process holds the lease.")
        self.snapshot_age = self._gauge("metrics_snapshot_age_seconds", "Seconds since Prometheus last answered.")
        self.snapshots = self._counter("metrics_snapshots", "Snapshots by result: ok or failed.", ("result",))
        self.snapshot_seconds = self._histogram("metrics_snapshot_duration_seconds", "Time of one snapshot.", _FAST)
        self.changes = self._counter(
            "changes", "Objects adopted, created, updated, repaired, deleted.", ("operation", "kind")
        )
        self.drifts = self._counter(
            "drift_repairs", "Foreign edits of our objects; result is repaired or given_up.", ("kind", "result")
        )
        self.events_dropped = self._counter("events_dropped", "Kubernetes Events that were not posted.")
        self.notifications = self._counter(
            "notifications",
            "Notifications by receiver and result: sent, retried, refused, expired, overflow.",
            ("receiver", "result"),
        )
        self.rollouts = self._counter("rollouts", "Finished rollouts by outcome.", ("outcome",))
        self.verdicts = self._counter("verdicts", "Verdicts that checks came to.", ("verdict",))
        self.weight_seconds = self._histogram(
            "weight_applied_seconds", "From a weight's decision to its confirmation in the router.", _SLOW
        )
        self.harm_seconds = self._histogram(
            "harm_to_zero_seconds", "From harm found to the candidate's weight seen at 0.", _SLOW
        )
        self.scaling = self._counter("scaling_decisions", "Changes of a number of replicas by reason.", ("reason",))
        self.build = self._gauge("build_info", "1; the version of the operator is in the label.", ("version",))
        self.build.labels(version).set(1)

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Name as scraped, type, labels and meaning of every metric."""
        return [
            (_scraped_name(metric), metric._type, ", ".join(metric._labelnames), metric._documentation)
            for metric in self._metrics
        ]

    def called(self, method: str, resource: str, code: int, seconds: float) -> None:
        """Count one call to the API server."""
        self.api_calls.labels(method, resource, str(code)).inc()
        self.api_seconds.observe(seconds)

    def notified(self, receiver: str, result: str) -> None:
        """Count a notification, or a try of one."""
        self.notifications.labels(receiver, result).inc()

    def changed(self, before: Mapping[str, Any] | None, after: ModelDeploymentStatus, now: float) -> None:
        """Count what a status just written has that the one before (as read) had not."""
        try:
            old = ModelDeploymentStatus.from_wire(before)
        except ValueError:
            return
        finished = {entry.id for entry in old.history}
        for entry in after.history:
            if entry.id not in finished:
                self.rollouts.labels(entry.outcome.value).inc()
        verdicts = {(check.rollout, check.name): check.verdict for check in old.analysis}
        for check in after.analysis:
            if verdicts.get((check.rollout, check.name)) not in (None, check.verdict):
                self.verdicts.labels(check.verdict.value).inc()
        seen = {(decision.at, decision.version) for decision in old.scaling}
        for decision in after.scaling:
            if (decision.at, decision.version) not in seen:
                self.scaling.labels(decision.reason).inc()
        self._rollout_times(old, after, now)

    def _rollout_times(self, old: ModelDeploymentStatus, after: ModelDeploymentStatus, now: float) -> None:
        rollout = after.rollout
        if rollout is None or old.rollout is None or old.rollout.id != rollout.id:
            return
        written, applied = parse_time(rollout.weight_written_at), parse_time(rollout.weight_applied_at)
        if rollout.weight_applied_at != old.rollout.weight_applied_at and written is not None and applied is not None:
            self.weight_seconds.observe(max(0.0, applied - written))
        harm = parse_time(rollout.harm_at)
        candidate, previous = after.revision(rollout.to_revision), old.revision(rollout.to_revision)
        had_weight = previous is not None and previous.weight.applied > 0
        if harm is not None and had_weight and (candidate is None or candidate.weight.applied == 0):
            self.harm_seconds.observe(max(0.0, now - harm))

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return self._declared(Counter(f"slipway_operator_{name}", text, labels, registry=self.registry))

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return self._declared(Gauge(f"slipway_operator_{name}", text, labels, registry=self.registry))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return self._declared(Histogram(f"slipway_operator_{name}", text, (), buckets=buckets, registry=self.registry))

    def _declared(self, metric: M) -> M:
        self._metrics.append(metric)
        return metric


def _scraped_name(metric: Counter | Gauge | Histogram) -> str:
    return f"{metric._name}_total" if isinstance(metric, Counter) else metric._name


def table() -> str:
    """The reference of all metrics as a Markdown table."""
    lines = ["| Metric | Type | Labels | Meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in Telemetry().rows()]
    return "\n".join(lines) + "\n"
