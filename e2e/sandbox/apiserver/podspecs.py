"""Pod specs, in pods and in templates: defaults and what the API server refuses."""

from __future__ import annotations

import re
from typing import Any

from . import quantities
from .failures import DUPLICATE, FORBIDDEN, INVALID, NOT_FOUND, NOT_SUPPORTED, REQUIRED, Cause
from .names import check_labels, is_label_name, is_subdomain
from .schema import JsonDict
from .values import shown

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINER_LISTS = ("initContainers", "containers")
_FILE_MODE = 0o644
_PORTS = range(1, 65536)
_ENV_NAME = re.compile(r"^[ -<>-~]+$")
_PORT_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_CHOICES = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "terminationMessagePolicy": ("FallbackToLogsOnError", "File"),
}
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_NATIVE = re.compile(r"^(cpu|memory|ephemeral-storage|hugepages-.*)$")


def fill(spec: JsonDict) -> None:
    """Fill in what a pod spec leaves open, in place."""
    for key in _CONTAINER_LISTS:
        for container in spec.get(key) or ():
            _fill_container(container)
    for volume in spec.get("volumes") or ():
        _fill_volume(volume)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")


def _fill_container(container: JsonDict) -> None:
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if container.get(name) is not None:
            _fill_probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and hook.get("httpGet") is not None:
            _fill_http(hook["httpGet"])
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return "Always" if not colon or tag == "latest" else "IfNotPresent"


def _fill_probe(probe: JsonDict) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if probe.get("httpGet") is not None:
        _fill_http(probe["httpGet"])
    if probe.get("grpc") is not None:
        probe["grpc"].setdefault("service", "")


def _fill_http(action: JsonDict) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _fill_volume(volume: JsonDict) -> None:
    for key in ("configMap", "secret", "projected", "downwardAPI"):
        if volume.get(key) is not None:
            volume[key].setdefault("defaultMode", _FILE_MODE)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    if set(volume) == {"name"}:
        volume["emptyDir"] = {}


def fill_requests(spec: JsonDict) -> None:
    """A pod's requests default to its limits (a template's do not)."""
    for key in _CONTAINER_LISTS:
        for container in spec.get(key) or ():
            resources = container.get("resources") or {}
            if resources.get("limits"):
                resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def quality_of_service(spec: JsonDict) -> str:
    """Guaranteed, Burstable or BestEffort."""
    guaranteed, some = True, False
    for key in _CONTAINER_LISTS:
        for container in spec.get(key) or ():
            resources = container.get("resources") or {}
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            for name in ("cpu", "memory"):
                some = some or name in requests or name in limits
                if name not in limits or quantities.value_of(requests.get(name, limits[name])) != quantities.value_of(
                    limits[name]
                ):
                    guaranteed = False
    if not some:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def check(spec: JsonDict, path: str, template: bool = False) -> list[Cause]:
    """What is wrong with a pod spec."""
    causes: list[Cause] = []
    containers = spec.get("containers")
    if not containers:
        causes.append(Cause(REQUIRED, f"{path}.containers", "Required value"))
    volumes = _check_volumes(spec.get("volumes") or [], f"{path}.volumes", causes)
    seen: set[str] = set()
    for key in _CONTAINER_LISTS:
        for index, container in enumerate(spec.get(key) or ()):
            where = f"{path}.{key}[{index}]"
            causes += _check_container(container, where, volumes)
            name = container.get("name", "")
            if name and name in seen:
                causes.append(Cause(DUPLICATE, f"{where}.name", f'Duplicate value: "{name}"'))
            seen.add(name)
    policy = spec.get("restartPolicy")
    allowed = ("Always",) if template else ("Always", "OnFailure", "Never")
    if policy not in allowed:
        causes.append(not_supported(f"{path}.restartPolicy", policy, allowed))
    if spec.get("dnsPolicy") not in _DNS_POLICIES:
        causes.append(not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES))
    causes += check_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        causes.append(_invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    account = spec.get("serviceAccountName")
    if account and not is_subdomain(account):
        causes.append(_invalid(f"{path}.serviceAccountName", account, "a lowercase RFC 1123 subdomain is required"))
    return causes


def not_supported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    """The cause for a value that is none of those allowed."""
    listed = ", ".join(f'"{name}"' for name in sorted(allowed))
    return Cause(NOT_SUPPORTED, path, f"Unsupported value: {shown(value)}: supported values: {listed}")


def _invalid(path: str, value: Any, words: str) -> Cause:
    return Cause(INVALID, path, f"Invalid value: {shown(value)}: {words}")


def _check_volumes(volumes: list[JsonDict], path: str, causes: list[Cause]) -> set[str]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name, where = volume.get("name", ""), f"{path}[{index}]"
        if not name:
            causes.append(Cause(REQUIRED, f"{where}.name", "Required value"))
        elif not is_label_name(name):
            causes.append(_invalid(f"{where}.name", name, "a lowercase RFC 1123 label is required"))
        elif name in seen:
            causes.append(Cause(DUPLICATE, f"{where}.name", f'Duplicate value: "{name}"'))
        seen.add(name)
        if len(volume) > 2:
            extra = sorted(set(volume) - {"name"})[1]
            causes.append(Cause(FORBIDDEN, f"{where}.{extra}", "Forbidden: may not specify more than 1 volume type"))
    return seen


def _check_container(container: JsonDict, path: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(Cause(REQUIRED, f"{path}.name", "Required value"))
    elif not is_label_name(name):
        causes.append(
            _invalid(
                f"{path}.name", name, "a lowercase RFC 1123 label must consist of lower case alphanumeric characters"
            )
        )
    if not container.get("image", "").strip():
        causes.append(Cause(REQUIRED, f"{path}.image", "Required value"))
    for key, allowed in _CHOICES.items():
        if container.get(key) not in allowed:
            causes.append(not_supported(f"{path}.{key}", container.get(key), allowed))
    causes += _check_ports(container.get("ports") or [], f"{path}.ports")
    causes += _check_environment(container.get("env") or [], f"{path}.env")
    causes += _check_mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    for probe in _PROBES:
        if container.get(probe) is not None:
            causes += _check_probe(container[probe], f"{path}.{probe}", must_succeed_once=probe != "readinessProbe")
    return causes + check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_ports(ports: list[JsonDict], path: str) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        number, name, where = port.get("containerPort", 0), port.get("name"), f"{path}[{index}]"
        if not number:
            causes.append(Cause(REQUIRED, f"{where}.containerPort", "Required value"))
        elif number not in _PORTS:
            causes.append(_invalid(f"{where}.containerPort", number, "must be between 1 and 65535, inclusive"))
        if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
            words = f'Unsupported value: {shown(port.get("protocol"))}: supported values: "SCTP", "TCP", "UDP"'
            causes.append(Cause(NOT_SUPPORTED, f"{where}.protocol", words))
        if name is None:
            continue
        if len(name) > 15 or not _PORT_NAME.match(name) or "--" in name or not any(c.isalpha() for c in name):
            causes.append(
                _invalid(f"{where}.name", name, "must be no more than 15 characters, lower case alphanumerics and '-'")
            )
        elif name in names:
            causes.append(Cause(DUPLICATE, f"{where}.name", f'Duplicate value: "{name}"'))
        names.add(name)
    return causes


def _check_environment(variables: list[JsonDict], path: str) -> list[Cause]:
    causes = []
    for index, variable in enumerate(variables):
        name, where = variable.get("name", ""), f"{path}[{index}]"
        if not name:
            causes.append(Cause(REQUIRED, f"{where}.name", "Required value"))
        elif not _ENV_NAME.match(name):
            causes.append(
                _invalid(f"{where}.name", name, "a valid environment variable name must consist of printable ASCII")
            )
        if variable.get("value") and variable.get("valueFrom"):
            causes.append(_invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty"))
    return causes


def _check_mounts(mounts: list[JsonDict], path: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        where, target = f"{path}[{index}]", mount.get("mountPath", "")
        if mount.get("name") not in volumes:
            causes.append(Cause(NOT_FOUND, f"{where}.name", f"Not found: {shown(mount.get('name'))}"))
        if not target:
            causes.append(Cause(REQUIRED, f"{where}.mountPath", "Required value"))
        elif target in seen:
            causes.append(_invalid(f"{where}.mountPath", target, "must be unique"))
        seen.add(target)
    return causes


def _check_probe(probe: JsonDict, path: str, must_succeed_once: bool) -> list[Cause]:
    causes = []
    handlers = [name for name in _HANDLERS if probe.get(name) is not None]
    if not handlers:
        causes.append(Cause(REQUIRED, path, "Required value: must specify a handler type"))
    for extra in handlers[1:]:
        causes.append(Cause(FORBIDDEN, f"{path}.{extra}", "Forbidden: may not specify more than 1 handler type"))
    for key in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if probe.get(key, 0) < 0:
            causes.append(_invalid(f"{path}.{key}", probe[key], "must be greater than or equal to 0"))
    if must_succeed_once and probe.get("successThreshold", 1) != 1:
        causes.append(_invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return causes


def check_resources(resources: JsonDict, path: str) -> list[Cause]:
    """Requests must not be above limits; extended resources such as GPUs must equal them and be whole."""
    causes: list[Cause] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for where, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            amount = quantities.value_of(text)
            if amount < 0:
                causes.append(_invalid(f"{path}.{where}[{name}]", text, "must be greater than or equal to 0"))
            if not _NATIVE.match(name) and "/" not in name:
                causes.append(
                    _invalid(f"{path}.{where}[{name}]", name, "must be a standard resource type or fully qualified")
                )
            elif not _NATIVE.match(name) and amount != amount.to_integral_value():
                causes.append(_invalid(f"{path}.{where}[{name}]", text, "must be an integer"))
    for name, text in requests.items():
        limit = limits.get(name)
        extended = not _NATIVE.match(name)
        if limit is None:
            if extended:
                causes.append(
                    Cause(
                        REQUIRED,
                        f"{path}.limits",
                        "Required value: Limit must be set for non overcommitable resources",
                    )
                )
        elif extended and quantities.value_of(text) != quantities.value_of(limit):
            causes.append(_invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limit}"))
        elif quantities.value_of(text) > quantities.value_of(limit):
            causes.append(_invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limit}"))
    return causes
