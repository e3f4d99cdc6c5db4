"""Disruption budgets, autoscalers and access rules: the rules of each kind."""

from __future__ import annotations

from typing import Any

from .failures import INVALID, NOT_SUPPORTED, REQUIRED, Cause
from .kinds import Rules
from .schema import JsonDict
from .values import shown
from .workloads import amount, spec_changed

_RBAC = "rbac.authorization.k8s.io"
_DEFAULT_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_METRIC_SOURCES = {
    "Resource": "resource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
    "ContainerResource": "containerResource",
}
_SCALE_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _prepare_budget(budget: JsonDict) -> None:
    budget["metadata"]["generation"] = 1


def _check_budget(budget: JsonDict) -> list[Cause]:
    spec, causes = budget["spec"], []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        words = f"Invalid value: {shown(spec)}: minAvailable and maxUnavailable cannot be both set"
        causes.append(Cause(INVALID, "spec", words))
    for key in ("minAvailable", "maxUnavailable"):
        if spec.get(key) is not None:
            causes += _check_amount(spec[key], f"spec.{key}")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy not in (None, "IfHealthyBudget", "AlwaysAllow"):
        words = f'Unsupported value: {shown(policy)}: supported values: "AlwaysAllow", "IfHealthyBudget"'
        causes.append(Cause(NOT_SUPPORTED, "spec.unhealthyPodEvictionPolicy", words))
    return causes


def _check_amount(value: Any, path: str) -> list[Cause]:
    found = amount(value, 100, up=True)
    if found is None:
        words = "a valid percent string must be a numeric string followed by an ending '%'"
        return [Cause(INVALID, path, f"Invalid value: {shown(value)}: {words}")]
    if found < 0:
        return [Cause(INVALID, path, f"Invalid value: {found}: must be greater than or equal to 0")]
    if isinstance(value, str) and found > 100:
        return [Cause(INVALID, path, f"Invalid value: {shown(value)}: must not be greater than 100%")]
    return []


def _default_autoscaler(autoscaler: JsonDict) -> None:
    spec = autoscaler["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [_DEFAULT_METRIC]
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = {**_SCALE_UP, **(behavior.get("scaleUp") or {})}
        behavior["scaleDown"] = {**_SCALE_DOWN, **(behavior.get("scaleDown") or {})}


def _check_autoscaler(autoscaler: JsonDict) -> list[Cause]:
    spec, causes = autoscaler["spec"], []
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        causes.append(Cause(INVALID, "spec.minReplicas", f"Invalid value: {least}: must be greater than or equal to 1"))
    if most < 1:
        causes.append(Cause(INVALID, "spec.maxReplicas", f"Invalid value: {most}: must be greater than 0"))
    if most < least:
        words = f"Invalid value: {most}: must be greater than or equal to `minReplicas`"
        causes.append(Cause(INVALID, "spec.maxReplicas", words))
    for key in ("kind", "name"):
        if not spec["scaleTargetRef"].get(key):
            causes.append(Cause(REQUIRED, f"spec.scaleTargetRef.{key}", "Required value"))
    for index, metric in enumerate(spec.get("metrics") or ()):
        causes += _check_metric(metric, f"spec.metrics[{index}]")
    return causes


def _default_autoscaler_v1(autoscaler: JsonDict) -> None:
    autoscaler["spec"].setdefault("minReplicas", 1)


def _check_metric(metric: JsonDict, path: str) -> list[Cause]:
    kind = metric.get("type", "")
    if not kind:
        return [Cause(REQUIRED, f"{path}.type", "Required value: must specify a metric source type")]
    if kind not in _METRIC_SOURCES:
        listed = ", ".join(f'"{name}"' for name in sorted(_METRIC_SOURCES))
        return [Cause(NOT_SUPPORTED, f"{path}.type", f"Unsupported value: {shown(kind)}: supported values: {listed}")]
    if metric.get(_METRIC_SOURCES[kind]) is None:
        words = "Required value: must populate information for the given metric source"
        return [Cause(REQUIRED, f"{path}.{_METRIC_SOURCES[kind]}", words)]
    return []


def _check_role(role: JsonDict) -> list[Cause]:
    causes = []
    for index, rule in enumerate(role.get("rules") or ()):
        if not rule.get("verbs"):
            causes.append(
                Cause(REQUIRED, f"rules[{index}].verbs", "Required value: verbs must contain at least one value")
            )
        if rule.get("nonResourceURLs"):
            if role["metadata"].get("namespace"):
                found = shown(rule["nonResourceURLs"])
                words = f"Invalid value: {found}: namespaced rules cannot apply to non-resource URLs"
                causes.append(Cause(INVALID, f"rules[{index}].nonResourceURLs", words))
            continue
        if not rule.get("apiGroups"):
            words = "Required value: resource rules must supply at least one api group"
            causes.append(Cause(REQUIRED, f"rules[{index}].apiGroups", words))
        if not rule.get("resources"):
            words = "Required value: resource rules must supply at least one resource"
            causes.append(Cause(REQUIRED, f"rules[{index}].resources", words))
    return causes


def _default_binding(binding: JsonDict) -> None:
    if not binding["roleRef"].get("apiGroup"):
        binding["roleRef"]["apiGroup"] = _RBAC
    for subject in binding.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = _RBAC


def _check_binding(binding: JsonDict) -> list[Cause]:
    causes, reference = [], binding["roleRef"]
    if reference.get("kind") not in ("Role", "ClusterRole"):
        words = f'Unsupported value: {shown(reference.get("kind"))}: supported values: "ClusterRole", "Role"'
        causes.append(Cause(NOT_SUPPORTED, "roleRef.kind", words))
    if reference.get("apiGroup") != _RBAC:
        words = f'Unsupported value: {shown(reference.get("apiGroup"))}: supported values: "{_RBAC}"'
        causes.append(Cause(NOT_SUPPORTED, "roleRef.apiGroup", words))
    if not reference.get("name"):
        causes.append(Cause(REQUIRED, "roleRef.name", "Required value"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        if not subject.get("name"):
            causes.append(Cause(REQUIRED, f"subjects[{index}].name", "Required value"))
        if subject.get("kind") not in ("User", "Group", "ServiceAccount"):
            words = (
                f'Unsupported value: {shown(subject.get("kind"))}: supported values: "Group", "ServiceAccount", "User"'
            )
            causes.append(Cause(NOT_SUPPORTED, f"subjects[{index}].kind", words))
        elif subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            causes.append(Cause(REQUIRED, f"subjects[{index}].namespace", "Required value"))
    return causes


def _check_binding_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    if new["roleRef"] == old["roleRef"]:
        return []
    return [Cause(INVALID, "roleRef", f"Invalid value: {shown(new['roleRef'])}: cannot change roleRef")]


BUDGET = Rules(prepare=_prepare_budget, check=_check_budget, counts=spec_changed, unconditional=False)
AUTOSCALER = Rules(defaults=_default_autoscaler, check=_check_autoscaler)
ROLE = Rules(check=_check_role, name_pattern="path", create_on_update=True)
BINDING = Rules(
    defaults=_default_binding,
    check=_check_binding,
    check_update=_check_binding_update,
    name_pattern="path",
    create_on_update=True,
)
AUTOSCALER_V1 = Rules(defaults=_default_autoscaler_v1)
