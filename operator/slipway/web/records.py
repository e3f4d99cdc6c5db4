"""What was measured and decided lately, in memory: pictures need a past, and status has none.

A record begins when the process first sees the object and survives nothing. Both the number of objects and the samples
of each are bounded; when a record is full, its older half is thinned, so that it reaches ever further back.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.analysis.evidence import SAFETY_WEIGHTS, SafetyTest
from slipway.api.samples import MetricsView, Sample
from slipway.api.status import CheckStatus, ModelDeploymentStatus, Phase, VersionStatus
from slipway.kube.cache import Cache
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key, key_of, uid_of

__all__ = ["CheckPoint", "Record", "RecordedSample", "Records", "VersionPoint", "sample_of"]

OBJECTS = 100
SAMPLES = 480
AT_REST = frozenset({Phase.READY.value, Phase.SUSPENDED.value, Phase.STALLED.value})
REST_SPACING = 15.0
"""Seconds between samples of an object at rest."""
LEAST_SPACING = 0.5
"""Seconds within which a newer sample takes the place of the one before."""
SMALLEST = 1e-9
"""Evidence below it counts as this much, so that its logarithm is finite."""


@dataclass(frozen=True, slots=True)
class VersionPoint:
    """One revision at one moment; None for what is not known."""

    version: str
    intended: int
    applied: int
    observed: float | None
    """Share of requests in per cent."""
    p99: float | None
    """Seconds."""
    errors: float | None
    """Share of requests answered with 5xx, 0 to 1."""
    qps: float | None
    replicas: int
    ready: int


@dataclass(frozen=True, slots=True)
class CheckPoint:
    """The evidence of one check at one moment, as decimal logarithms of e-values."""

    harm: float | None
    safe: float | None


@dataclass(frozen=True, slots=True)
class RecordedSample:
    """An object at one moment."""

    at: float
    """Seconds since the epoch."""
    versions: Mapping[str, VersionPoint]
    """By revision."""
    checks: Mapping[str, CheckPoint]
    """By name."""


@dataclass(slots=True)
class Record:
    """The past of one object."""

    uid: str
    since: float
    """When recording began, in seconds since the epoch."""
    limit: int
    samples: list[RecordedSample] = field(default_factory=list)
    at_rest: bool = False

    def add(self, sample: RecordedSample) -> None:
        """Append a sample; thin the older half when there are too many."""
        if self.samples and sample.at - self.samples[-1].at < LEAST_SPACING:
            self.samples[-1] = sample
            return
        self.samples.append(sample)
        if len(self.samples) > self.limit:
            half = self.limit // 2
            self.samples = self.samples[:half:2] + self.samples[half:]


class Records:
    """The past of all objects that there is room for; those that are rolled out come before those at rest."""

    def __init__(
        self,
        cache: Cache,
        metrics: Callable[[str, str], MetricsView],
        wall: Callable[[], float],
        *,
        objects: int = OBJECTS,
        samples: int = SAMPLES,
    ) -> None:
        """``metrics`` gives the newest view by namespace and name, ``wall`` seconds since the epoch."""
        self._cache = cache
        self._metrics = metrics
        self._wall = wall
        self._objects = objects
        self._samples = samples
        self._records: dict[Key, Record] = {}

    def of(self, key: Key) -> Record | None:
        """The record of an object, where there is one."""
        return self._records.get(key)

    def measured(self) -> None:
        """Take a sample of every object that the cache knows."""
        now, keys = self._wall(), self._cache.keys(MODEL_DEPLOYMENT)
        for key in self._records.keys() - set(keys):
            del self._records[key]
        for key in keys:
            obj = self._cache.get(MODEL_DEPLOYMENT, key) or {}
            raw = obj.get("status") or {}
            record = self._due(key, uid_of(obj), str(raw.get("phase")) in AT_REST, now)
            if record is None:
                continue
            try:
                status = ModelDeploymentStatus.from_wire(raw)
            except ValueError:
                continue
            record.add(sample_of(status, self._metrics(*key), now))

    def decided(self, raw: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> None:
        """Take a sample of what has just been decided."""
        key = key_of(raw)
        record = self._due(key, uid_of(raw), status.phase.value in AT_REST, now)
        if record is not None:
            record.add(sample_of(status, self._metrics(*key), now))

    def _due(self, key: Key, uid: str, at_rest: bool, now: float) -> Record | None:
        """The record of an object, if a sample of it is due and there is room; coming to rest is always recorded."""
        record = self._records.get(key)
        if record is None or record.uid != uid:
            self._records.pop(key, None)
            if len(self._records) >= self._objects and not self._make_room(at_rest):
                return None
            record = self._records[key] = Record(uid, now, self._samples)
        rested, record.at_rest = record.at_rest, at_rest
        if rested and at_rest and record.samples and now - record.samples[-1].at < REST_SPACING:
            return None
        return record

    def _make_room(self, at_rest: bool) -> bool:
        if at_rest:
            return False
        resting = next((place for place, other in self._records.items() if other.at_rest), None)
        if resting is None:
            return False
        del self._records[resting]
        return True


def sample_of(status: ModelDeploymentStatus, metrics: MetricsView, now: float) -> RecordedSample:
    """What a status and the newest metrics say together."""
    arrivals = {entry.revision: _value(metrics.of(entry.revision).arrivals) for entry in status.versions}
    # Shares of a whole that is known only in part would be too large.
    whole = all(arrivals[entry.revision] is not None for entry in status.versions if entry.weight.applied > 0)
    total = sum(value or 0.0 for value in arrivals.values()) if whole else 0.0
    return RecordedSample(
        at=round(now, 3),
        versions={
            entry.revision: _version(entry, metrics, arrivals[entry.revision], total) for entry in status.versions
        },
        checks={check.name: _check(check) for check in status.analysis},
    )


def _version(entry: VersionStatus, metrics: MetricsView, arrivals: float | None, total: float) -> VersionPoint:
    measured = metrics.of(entry.revision)
    return VersionPoint(
        version=entry.name,
        intended=entry.weight.intended,
        applied=entry.weight.applied,
        observed=_short(100 * arrivals / total) if arrivals is not None and total > 0 else None,
        p99=_value(measured.latency_p99),
        errors=_value(measured.error_rate),
        qps=arrivals,
        replicas=entry.replicas,
        ready=entry.ready_replicas,
    )


def _check(check: CheckStatus) -> CheckPoint:
    harm = _log10(check.evidence.number) if check.evidence is not None else None
    logs = [log.number for log in check.safe_log]
    # Only a quotient of wealth is asked for, so ratio, value and bound of the test do not matter.
    safe = _log10(SafetyTest(1.0, 0.5, 1.0).wealth(logs)) if len(logs) == len(SAFETY_WEIGHTS) else None
    return CheckPoint(harm, safe)


def _log10(number: float) -> float:
    return round(math.log10(max(number, SMALLEST)), 3)


def _value(sample: Sample) -> float | None:
    return _short(sample.value) if sample.ok and math.isfinite(sample.value) else None


def _short(number: float) -> float:
    """Six digits are enough for a picture."""
    return float(f"{number:.6g}")
