"""Pods, Deployments, ReplicaSets and ControllerRevisions: the rules of each kind."""

from __future__ import annotations

import copy
from typing import Any

from . import podspecs
from .failures import FORBIDDEN, INVALID, NOT_SUPPORTED, REQUIRED, Cause
from .kinds import Rules, dig
from .names import check_labels
from .schema import JsonDict
from .selectors import from_object, matches
from .values import shown

_POD_UPDATE_WORDS = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_ADDED_TOLERATIONS = (
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
)
_DEADLINE = 600


def spec_changed(new: JsonDict, old: JsonDict) -> bool:
    """Whether the spec differs."""
    return bool(new.get("spec") != old.get("spec"))


def spec_or_annotations_changed(new: JsonDict, old: JsonDict) -> bool:
    """Whether the spec or the annotations differ."""
    return spec_changed(new, old) or dig(new, "metadata", "annotations") != dig(old, "metadata", "annotations")


def _default_pod(pod: JsonDict) -> None:
    spec = pod["spec"]
    podspecs.fill_requests(spec)
    podspecs.fill(spec)
    spec.setdefault("enableServiceLinks", True)
    ips = dig(pod, "status", "podIPs")
    if dig(pod, "status", "podIP") and not ips:
        pod["status"]["podIPs"] = [{"ip": pod["status"]["podIP"]}]


def _prepare_pod(pod: JsonDict) -> None:
    spec = pod["spec"]
    tolerations = spec.get("tolerations") or []
    for added in _ADDED_TOLERATIONS:
        known = any(
            t.get("key") in (added["key"], None) and t.get("effect") in ("NoExecute", None) for t in tolerations
        )
        if not known:
            tolerations = [*tolerations, dict(added)]
    spec["tolerations"] = tolerations
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    pod["metadata"]["generation"] = 1
    pod["status"] = {"phase": "Pending", "qosClass": podspecs.quality_of_service(spec)}


def _check_pod(pod: JsonDict) -> list[Cause]:
    return podspecs.check(pod["spec"], "spec")


def _check_pod_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    allowed = copy.deepcopy(new["spec"])
    before = old["spec"]
    for key in ("containers", "initContainers"):
        ours, theirs = allowed.get(key) or [], before.get(key) or []
        if len(ours) != len(theirs):
            words = "Forbidden: pod updates may not add or remove containers"
            return [Cause(FORBIDDEN, f"spec.{key}", words)]
        for mine, other in zip(ours, theirs, strict=True):
            if not mine.get("image"):
                return [Cause(REQUIRED, f"spec.{key}[0].image", "Required value")]
            mine["image"], mine["imagePullPolicy"] = other.get("image"), other.get("imagePullPolicy")
    kept, known = before.get("tolerations") or [], allowed.get("tolerations") or []
    if all(toleration in known for toleration in kept):
        allowed["tolerations"] = kept
    for key in ("activeDeadlineSeconds", "tolerations"):
        if key in before:
            allowed[key] = before[key]
        else:
            allowed.pop(key, None)
    if allowed == before:
        return []
    return [Cause(FORBIDDEN, "spec", _POD_UPDATE_WORDS)]


def _default_template(template: JsonDict) -> None:
    podspecs.fill(template["spec"])


def _default_deployment(deployment: JsonDict) -> None:
    spec = deployment["spec"]
    _default_template(spec["template"])
    spec.setdefault("replicas", 1)
    strategy = spec["strategy"]
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", _DEADLINE)


def _default_replica_set(replica_set: JsonDict) -> None:
    _default_template(replica_set["spec"]["template"])
    replica_set["spec"].setdefault("replicas", 1)


def _start_generation(obj: JsonDict) -> None:
    obj["metadata"]["generation"] = 1


def _check_template_and_selector(spec: JsonDict) -> list[Cause]:
    causes: list[Cause] = []
    labels = dig(spec, "template", "metadata", "labels") or {}
    selector = spec.get("selector")
    if selector is None:
        causes.append(Cause(REQUIRED, "spec.selector", "Required value"))
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        causes.append(Cause(INVALID, "spec.selector", "Invalid value: {}: empty selector is invalid for deployment"))
    elif selector is None or not matches(from_object(selector) or (), labels):
        words = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        causes.append(Cause(INVALID, "spec.template.metadata.labels", words))
    causes += check_labels(labels, "spec.template.labels")
    if spec.get("replicas", 0) < 0:
        words = f"Invalid value: {spec['replicas']}: must be greater than or equal to 0"
        causes.append(Cause(INVALID, "spec.replicas", words))
    if spec.get("minReadySeconds", 0) < 0:
        words = f"Invalid value: {spec['minReadySeconds']}: must be greater than or equal to 0"
        causes.append(Cause(INVALID, "spec.minReadySeconds", words))
    return causes + podspecs.check(spec["template"]["spec"], "spec.template.spec", template=True)


def amount(value: Any, whole: int, up: bool) -> int | None:
    """An int-or-percent as a number of `whole`; None if it is neither."""
    if isinstance(value, int):
        return value
    text = str(value)
    if not text.endswith("%") or not text[:-1].isdigit():
        return None
    share = int(text[:-1]) * whole
    return -(-share // 100) if up else share // 100


def _check_deployment(deployment: JsonDict) -> list[Cause]:
    spec = deployment["spec"]
    causes = _check_template_and_selector(spec)
    strategy, where = spec.get("strategy", {}), "spec.strategy"
    if strategy.get("type") not in ("RollingUpdate", "Recreate"):
        words = f'Unsupported value: {shown(strategy.get("type"))}: supported values: "Recreate", "RollingUpdate"'
        causes.append(Cause(NOT_SUPPORTED, f"{where}.type", words))
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == "Recreate" and rolling is not None:
        words = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        causes.append(Cause(FORBIDDEN, f"{where}.rollingUpdate", words))
    elif rolling is not None:
        causes += _check_rolling(rolling, f"{where}.rollingUpdate")
    deadline = spec.get("progressDeadlineSeconds", _DEADLINE)
    if deadline <= spec.get("minReadySeconds", 0):
        words = f"Invalid value: {deadline}: must be greater than minReadySeconds"
        causes.append(Cause(INVALID, "spec.progressDeadlineSeconds", words))
    return causes


def _check_rolling(rolling: JsonDict, path: str) -> list[Cause]:
    causes = []
    sizes = {}
    for key in ("maxUnavailable", "maxSurge"):
        size = sizes[key] = amount(rolling.get(key, 0), 100, up=True)
        if size is None or size < 0:
            words = "a valid percent string must be a numeric string followed by an ending '%'"
            causes.append(Cause(INVALID, f"{path}.{key}", f"Invalid value: {shown(rolling.get(key))}: {words}"))
    if sizes["maxUnavailable"] == 0 and sizes["maxSurge"] == 0:
        words = f"Invalid value: {shown(rolling.get('maxUnavailable', 0))}: may not be 0 when `maxSurge` is 0"
        causes.append(Cause(INVALID, f"{path}.maxUnavailable", words))
    return causes


def _check_immutable_selector(new: JsonDict, old: JsonDict) -> list[Cause]:
    if new["spec"].get("selector") == old["spec"].get("selector"):
        return []
    words = f"Invalid value: {shown(new['spec'].get('selector'))}: field is immutable"
    return [Cause(INVALID, "spec.selector", words)]


def _check_replica_set(replica_set: JsonDict) -> list[Cause]:
    return _check_template_and_selector(replica_set["spec"])


def _check_revision(revision: JsonDict) -> list[Cause]:
    causes = []
    if revision.get("data") is None:
        causes.append(Cause(REQUIRED, "data", "Required value: data is mandatory"))
    if revision.get("revision", 0) < 0:
        causes.append(
            Cause(INVALID, "revision", f"Invalid value: {revision['revision']}: must be greater than or equal to 0")
        )
    return causes


def _check_revision_update(new: JsonDict, old: JsonDict) -> list[Cause]:
    if new.get("data") == old.get("data"):
        return []
    return [Cause(INVALID, "data", f"Invalid value: {shown(new.get('data'))}: field is immutable")]


POD = Rules(
    defaults=_default_pod,
    prepare=_prepare_pod,
    check=_check_pod,
    check_update=_check_pod_update,
    counts=spec_changed,
    returns_deleted=True,
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
)
DEPLOYMENT = Rules(
    defaults=_default_deployment,
    prepare=_start_generation,
    check=_check_deployment,
    check_update=_check_immutable_selector,
    counts=spec_or_annotations_changed,
)
REPLICA_SET = Rules(
    defaults=_default_replica_set,
    prepare=_start_generation,
    check=_check_replica_set,
    check_update=_check_immutable_selector,
    counts=spec_changed,
    fields=("status.replicas",),
)
CONTROLLER_REVISION = Rules(check=_check_revision, check_update=_check_revision_update)
