"""The JSON documents behind the page, made of cached objects and their records. The spec is not part of them."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import log10
from typing import Any, TypeVar

from slipway.api.conditions import find_condition
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ConditionType, ModelDeploymentStatus, Stage
from slipway.api.validation import validate
from slipway.cli.outlook import next_lines
from slipway.kube.cache import Cache
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import Key, resource_version, uid_of
from slipway.web.records import Record, Records

__all__ = ["Answers"]

T = TypeVar("T")

READ = 4000
"""Objects of which the parsed form is kept."""
FRESH = 1.0
"""Seconds for which all readers of the table share one answer."""
AT_ONCE = 5
"""Rows after which the event loop has its turn: reconciles come first."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    version: str
    status: ModelDeploymentStatus
    problem: str = ""
    """Why the status cannot be read."""


class Answers:
    """Answers questions about the objects in the cache; parses each of them once for each change."""

    def __init__(self, cache: Cache, records: Records) -> None:
        self._cache = cache
        self._records = records
        self._parsed: OrderedDict[str, _Parsed] = OrderedDict()
        self._specs: OrderedDict[str, tuple[int, ModelDeploymentSpec | None]] = OrderedDict()
        self._listing = asyncio.Lock()
        self._listed: tuple[float, list[dict[str, Any]]] | None = None

    async def overview(self, now: float) -> list[dict[str, Any]]:
        """All objects by namespace and name, a row of the table each; at most a second old."""
        async with self._listing:
            if self._listed is None or not 0 <= now - self._listed[0] < FRESH:
                self._listed = now, await self._rows(now)
            return self._listed[1]

    async def _rows(self, now: float) -> list[dict[str, Any]]:
        rows = []
        for place, key in enumerate(sorted(self._cache.keys(MODEL_DEPLOYMENT)), start=1):
            obj = self._cache.get(MODEL_DEPLOYMENT, key)
            if obj is not None:
                rows.append(self._summary(key, obj, now))
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
        return rows

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
            "bounds": _bounds(self._spec(obj)),
            "history": list(reversed(status["history"])),
            "scaling": list(reversed(status["scaling"])),
            "conditions": status["conditions"],
            "recording": _recording(record, after),
        }

    def _summary(self, key: Key, obj: Mapping[str, Any], now: float) -> dict[str, Any]:
        parsed = self._parse(obj)
        status, ready = parsed.status, find_condition(parsed.status.conditions, ConditionType.READY)
        generation, rollout = _generation(obj), status.rollout
        # Reading a spec takes milliseconds, and only what is on its way needs it.
        spec = self._spec(obj) if rollout is not None and rollout.stage is not Stage.FINISHED else None
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
            "next": next_lines(key.name, spec, status, generation, now),
        }

    def _parse(self, obj: Mapping[str, Any]) -> _Parsed:
        uid, version = uid_of(obj), resource_version(obj)
        known = self._parsed.get(uid)
        if known is not None and known.version == version:
            self._parsed.move_to_end(uid)
            return known
        try:
            parsed = _Parsed(version, ModelDeploymentStatus.from_wire(obj.get("status")))
        except ValueError:
            parsed = _Parsed(version, ModelDeploymentStatus(), "the status is not of a form that can be read")
        _keep(self._parsed, uid, parsed)
        return parsed

    def _spec(self, obj: Mapping[str, Any]) -> ModelDeploymentSpec | None:
        """The spec; None where it is not valid."""
        uid, generation = uid_of(obj), _generation(obj)
        known = self._specs.get(uid)
        if known is not None and known[0] == generation:
            return known[1]
        spec = validate(obj).spec
        _keep(self._specs, uid, (generation, spec))
        return spec


def _keep(kept: OrderedDict[str, T], uid: str, value: T) -> None:
    kept[uid] = value
    kept.move_to_end(uid)
    while len(kept) > READ:
        kept.popitem(last=False)


def _generation(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"].get("generation") or 0)


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
