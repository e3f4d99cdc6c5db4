"""The JSON documents behind the page, made of cached objects and their records. The spec is not part of them."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log10
from typing import Any

from slipway.api.conditions import find_condition
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ConditionType, ModelDeploymentStatus
from slipway.api.validation import validate
from slipway.cli.outlook import next_lines
from slipway.kube.cache import Cache
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key, resource_version, uid_of
from slipway.web.records import Record, Records

__all__ = ["Answers"]

READ = 2000
"""Objects of which the parsed form is kept."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    version: str
    status: ModelDeploymentStatus
    spec: ModelDeploymentSpec | None
    """None where it is not valid."""
    problem: str = ""
    """Why the status cannot be read."""


class Answers:
    """Answers questions about the objects in the cache; parses each of them once for each change."""

    def __init__(self, cache: Cache, records: Records) -> None:
        self._cache = cache
        self._records = records
        self._parsed: OrderedDict[str, _Parsed] = OrderedDict()

    def overview(self, now: float) -> list[dict[str, Any]]:
        """All objects by namespace and name, a row of the table each."""
        keys = sorted(self._cache.keys(MODEL_DEPLOYMENT))
        found = ((key, self._cache.get(MODEL_DEPLOYMENT, key)) for key in keys)
        return [self._summary(key, obj, now) for key, obj in found if obj is not None]

    def detail(self, key: Key, now: float, after: float = 0.0) -> dict[str, Any] | None:
        """Everything about one object, with the samples after a time (seconds since the epoch); None without it."""
        obj = self._cache.get(MODEL_DEPLOYMENT, key)
        if obj is None:
            return None
        parsed = self._parse(obj)
        status = parsed.status.to_wire()
        record = self._records.of(key)
        if record is not None and record.uid != uid_of(obj):
            record = None
        return {
            **self._summary(key, obj, now),
            "uid": uid_of(obj),
            "generation": obj["metadata"].get("generation", 0),
            "observedGeneration": parsed.status.observed_generation,
            "url": parsed.status.url,
            "rollout": status.get("rollout"),
            "versions": [_without(entry, "plans", "coldStart", "trend", "capacity") for entry in status["versions"]],
            "checks": [_without(check, "harmLog", "safeLog", "pods", "badPods") for check in status["analysis"]],
            "bounds": _bounds(parsed.spec),
            "history": list(reversed(status["history"])),
            "scaling": list(reversed(status["scaling"])),
            "conditions": status["conditions"],
            "recording": _recording(record, after),
        }

    def _summary(self, key: Key, obj: Mapping[str, Any], now: float) -> dict[str, Any]:
        parsed = self._parse(obj)
        status, ready = parsed.status, find_condition(parsed.status.conditions, ConditionType.READY)
        generation = int(obj["metadata"].get("generation") or 0)
        return {
            "namespace": key.namespace,
            "name": key.name,
            "phase": status.phase.value,
            "stable": status.stable,
            "candidate": status.candidate,
            "weight": status.weight,
            "replicas": status.replicas,
            "reason": "StatusUnreadable" if parsed.problem else ready.reason if ready else "",
            "message": parsed.problem or (ready.message if ready else ""),
            "next": next_lines(key.name, parsed.spec, status, generation, now),
        }

    def _parse(self, obj: Mapping[str, Any]) -> _Parsed:
        uid, version = uid_of(obj), resource_version(obj)
        known = self._parsed.get(uid)
        if known is not None and known.version == version:
            self._parsed.move_to_end(uid)
            return known
        spec = validate(obj).spec
        try:
            parsed = _Parsed(version, ModelDeploymentStatus.from_wire(obj.get("status")), spec)
        except ValueError:
            parsed = _Parsed(version, ModelDeploymentStatus(), spec, "the status is not of a form that can be read")
        self._parsed[uid] = parsed
        while len(self._parsed) > READ:
            self._parsed.popitem(last=False)
        return parsed


def _bounds(spec: ModelDeploymentSpec | None) -> dict[str, float]:
    """Decimal logarithms of the e-values at which harm and safety are found; none where nothing is compared."""
    if spec is None:
        return {}
    analysis = spec.rollout.analysis
    tests = sum(1 for check in analysis.checks if not check.query)
    return {"harm": round(log10(max(tests, 1) / analysis.alpha), 3), "safe": round(log10(1 / analysis.alpha), 3)}


def _recording(record: Record | None, after: float) -> dict[str, Any]:
    if record is None:
        return {"since": None, "samples": []}
    return {"since": record.since, "samples": [asdict(sample) for sample in record.samples if sample.at > after]}


def _without(entry: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}
