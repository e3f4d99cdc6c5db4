"""How many replicas: KServe's component settings and HorizontalPodAutoscalers as ``spec.autoscaling``."""

import re
from collections.abc import Mapping
from typing import Any

from slipway.api.scalars import Quantity
from slipway.conversion.ledger import Ledger

__all__ = ["convert_autoscaler", "convert_component_scaling"]

Path = tuple[str | int, ...]

_RATE = re.compile(r"(request|query|queries|qps|rps|hits).*(per_second|rate|qps|rps)|^(qps|rps)$|requests_per_second")
_FLIGHT = re.compile(r"in_flight|inflight|concurren|active_requests")
_GPU = re.compile(r"gpu.*util|dcgm_fi_dev_gpu_util")
_NOT_BY_THIS = (
    "Slipway scales on requests, concurrency and GPUs: set spec.autoscaling.qps.target; until then the share of time "
    "that servers are busy decides"
)


def convert_component_scaling(ledger: Ledger, at: Path) -> None:
    """``minReplicas`` to ``scaleMetric`` of a KServe component at ``at``."""
    _bounds(ledger, at)
    target, metric = ledger.whole(*at, "scaleTarget"), ledger.text(*at, "scaleMetric")
    if target is not None and metric in ("rps", "concurrency", ""):
        field = "qps" if metric == "rps" else "concurrency"
        ledger.place(f"spec.autoscaling.{field}.target", target, *at, "scaleTarget")
        if metric:
            ledger.settle(*at, "scaleMetric")
        else:
            ledger.partly("taken for requests in flight, as Knative does; in mode Standard it means CPU", *at,
                          "scaleTarget")  # fmt: skip
    else:
        for field in ("scaleTarget", "scaleMetric"):
            if ledger.get(*at, field) is not None:
                ledger.dropped(_NOT_BY_THIS, *at, field)
    for field, message in (
        ("scaleMetricType", "says how another autoscaler reads scaleTarget"),
        ("autoScaling", _NOT_BY_THIS),
    ):
        if ledger.get(*at, field) is not None:
            ledger.dropped(message, *at, field)


def _bounds(ledger: Ledger, at: Path) -> None:
    fewest, most = ledger.whole(*at, "minReplicas"), ledger.whole(*at, "maxReplicas")
    if fewest is not None:
        ledger.place("spec.autoscaling.minReplicas", max(1, fewest), *at, "minReplicas")
        if fewest < 1:
            ledger.partly("Slipway does not scale to zero, so one replica stays", *at, "minReplicas")
    if most is not None and most > 0:
        ledger.place("spec.autoscaling.maxReplicas", most, *at, "maxReplicas")
    elif most == 0:
        ledger.partly("no bound; Slipway has one (spec.autoscaling.maxReplicas)", *at, "maxReplicas")
    if most is None or most < 1:
        least = max(1, fewest or 1)
        if least > 8:
            ledger.set("spec.autoscaling.maxReplicas", least)


def convert_autoscaler(ledger: Ledger, scaler: Ledger) -> None:
    """A HorizontalPodAutoscaler, whose own books are ``scaler``, into what ``ledger`` makes."""
    _bounds(scaler, ("spec",))
    for number, metric in enumerate(scaler.items("spec", "metrics")):
        _metric(scaler, metric, ("spec", "metrics", number))
    if scaler.get("spec", "targetCPUUtilizationPercentage") is not None:
        scaler.dropped(_NOT_BY_THIS, "spec", "targetCPUUtilizationPercentage")
    _behavior(scaler, ("spec", "behavior"))
    scaler.settle("spec", "scaleTargetRef")
    if "autoscaling" in scaler.made.get("spec", {}):
        ledger.set("spec.autoscaling", scaler.made["spec"]["autoscaling"])


def _metric(scaler: Ledger, metric: Any, at: Path) -> None:
    kind = str(metric.get("type", "")).lower() if isinstance(metric, Mapping) else ""
    name = scaler.text(*at, kind, "metric", "name").lower()
    value = _number(scaler.get(*at, kind, "target", "averageValue"))
    if kind not in ("pods", "external", "object") or value is None:
        scaler.dropped(_NOT_BY_THIS, *at)
    elif _GPU.search(name):
        _target(scaler, "gpuUtilization.target", value, at, name)
    elif _FLIGHT.search(name):
        _target(scaler, "concurrency.target", value, at, name)
    elif _RATE.search(name):
        _target(scaler, "qps.target", value, at, name)
    else:
        scaler.dropped(f"nothing says what {name or 'it'} counts. {_NOT_BY_THIS}", *at)


def _target(scaler: Ledger, field: str, value: float, at: Path, name: str) -> None:
    shown = int(value) if value == int(value) else value
    scaler.place(f"spec.autoscaling.{field}", shown, *at)
    scaler.partly(f"{name} is taken for {field.partition('.')[0]} of a replica; Slipway measures that itself", *at)


def _number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return float(Quantity(value).value) if isinstance(value, str) else None
    except ValueError:
        return None


def _behavior(scaler: Ledger, at: Path) -> None:
    window = scaler.whole(*at, "scaleDown", "stabilizationWindowSeconds")
    if window is not None:
        scaler.place("spec.autoscaling.stabilizationWindow", f"{window}s", *at, "scaleDown",
                     "stabilizationWindowSeconds")  # fmt: skip
    if scaler.whole(*at, "scaleUp", "stabilizationWindowSeconds") == 0:
        scaler.unneeded("Slipway never waits before it adds replicas", *at, "scaleUp", "stabilizationWindowSeconds")
    for way, kinds in (("scaleUp", {"Percent": "maxPercent", "Pods": "maxReplicas"}),
                       ("scaleDown", {"Percent": "maxPercent"})):  # fmt: skip
        for number, policy in enumerate(scaler.items(*at, way, "policies")):
            path = (*at, way, "policies", number)
            field = kinds.get(str(policy.get("type"))) if isinstance(policy, Mapping) else None
            value = scaler.whole(*path, "value")
            if field is None or value is None:
                scaler.dropped("has no counterpart", *path)
            else:
                scaler.place(f"spec.autoscaling.{way}.{field}", value, *path)
                scaler.partly("bounds one step, whatever its period", *path)
