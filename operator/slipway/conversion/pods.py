"""Pods and containers: what a pod template says, as ``spec.runtime`` of a ModelDeployment says it."""

from collections.abc import Mapping
from typing import Any

from slipway.conversion.huggingface import convert_arguments
from slipway.conversion.ledger import Ledger

__all__ = ["SERVER", "convert_container", "convert_pod", "role_of"]

Path = tuple[str | int, ...]

SERVER = "server"
"""Name of the container of Slipway that answers requests."""

_POD_FIELDS = frozenset(
    [
        "nodeSelector",
        "tolerations",
        "affinity",
        "volumes",
        "imagePullSecrets",
        "topologySpreadConstraints",
        "priorityClassName",
        "priority",
        "preemptionPolicy",
        "schedulerName",
        "runtimeClassName",
        "securityContext",
        "hostAliases",
        "dnsPolicy",
        "dnsConfig",
        "hostNetwork",
        "hostIPC",
        "hostPID",
        "hostname",
        "subdomain",
        "setHostnameAsFQDN",
        "initContainers",
        "automountServiceAccountToken",
        "enableServiceLinks",
        "shareProcessNamespace",
        "readinessGates",
        "overhead",
        "os",
        "resourceClaims",
        "schedulingGates",
        "nodeName",
    ]
)
_CONTAINER_FIELDS = frozenset(
    [
        "envFrom",
        "volumeMounts",
        "volumeDevices",
        "securityContext",
        "lifecycle",
        "workingDir",
        "imagePullPolicy",
        "stdin",
        "stdinOnce",
        "tty",
        "terminationMessagePath",
        "terminationMessagePolicy",
    ]
)
_ROLES = {"grpc": ("grpc", "h2c"), "metrics": ("metrics", "prom", "monitoring")}
"""What a port is for, by words in its name; h2c is Knative's for gRPC. The others are for HTTP."""
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def convert_pod(ledger: Ledger, at: Path) -> None:
    """The fields of a PodSpec at ``at`` except its containers."""
    for field in ledger.table(*at):
        if field in _POD_FIELDS:
            ledger.move(f"spec.runtime.podTemplate.spec.{field}", *at, field)
    account = "serviceAccountName" if ledger.get(*at, "serviceAccountName") else "serviceAccount"
    ledger.move("spec.runtime.serviceAccountName", *at, account)
    if account == "serviceAccountName" and ledger.get(*at, "serviceAccount") is not None:
        ledger.unneeded("serviceAccountName counts", *at, "serviceAccount")
    grace = ledger.whole(*at, "terminationGracePeriodSeconds")
    if grace is not None:
        ledger.place("spec.runtime.terminationGracePeriod", f"{grace}s", *at, "terminationGracePeriodSeconds")
    if ledger.text(*at, "restartPolicy") == "Always":
        ledger.unneeded("is so in every Deployment", *at, "restartPolicy")


def convert_container(ledger: Ledger, at: Path, engine: str) -> dict[str, Any]:
    """The container at ``at`` becomes the server container; returns the overlay that ``podTemplate`` needs for it.

    With engine ``custom`` the container's own image is what serves; otherwise an engine of Slipway's takes its place,
    and what belongs to the old server (image, command, arguments, ports, probes) is reported.
    """
    overlay: dict[str, Any] = {}
    for field in ledger.table(*at):
        if field in _CONTAINER_FIELDS:
            overlay[field] = ledger.get(*at, field)
            ledger.settle(*at, field)
    if ledger.get(*at, "name") is not None:
        ledger.unneeded(f"Slipway names the container {SERVER}", *at, "name")
    ledger.move("spec.runtime.resources", *at, "resources")
    _environment(ledger, at)
    if engine == "custom":
        overlay |= _own_server(ledger, at)
    else:
        _foreign_server(ledger, at, engine)
    return overlay


def _environment(ledger: Ledger, at: Path) -> None:
    """Variables by name; of two with one name the last one counts, as in a container."""
    variables: dict[str, tuple[int, Any]] = {}
    for number, variable in enumerate(ledger.items(*at, "env")):
        if not isinstance(variable, Mapping) or not isinstance(variable.get("name"), str):
            ledger.dropped("has no name", *at, "env", number)
            continue
        if variable["name"] in variables:
            ledger.dropped("a later variable has this name", *at, "env", variables[variable["name"]][0])
        variables[variable["name"]] = number, dict(variable)
    if variables:
        ledger.place("spec.runtime.env", [variable for _, variable in variables.values()], *at, "env")


def _own_server(ledger: Ledger, at: Path) -> dict[str, Any]:
    overlay: dict[str, Any] = {}
    ledger.move("spec.runtime.image", *at, "image")
    ledger.move("spec.runtime.args", *at, "args")
    if ledger.get(*at, "command") is not None:
        overlay["command"] = ledger.get(*at, "command")
        ledger.settle(*at, "command")
    names, kept = _ports(ledger, at)
    if kept:
        overlay["ports"] = kept
    for probe in _PROBES:
        given = ledger.table(*at, probe)
        if given:
            overlay[probe] = _probe(given, names)
            ledger.settle(*at, probe)
            if any(
                overlay[probe].get(action) != given.get(action)
                for action in ("httpGet", "tcpSocket")
                if action in given
            ):
                ledger.partly("its port is given by number", *at, probe)
    return overlay


def _ports(ledger: Ledger, at: Path) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Numbers of ports by their old names, and the ports by the names that Slipway knows: http, grpc and metrics."""
    names: dict[str, int] = {}
    kept: dict[str, int] = {}
    for position, _ in enumerate(ledger.items(*at, "ports")):
        path = (*at, "ports", position)
        number, name = ledger.whole(*path, "containerPort"), ledger.text(*path, "name")
        if number is None:
            ledger.dropped("has no number", *path)
            continue
        names |= {name: number} if name else {}
        role = role_of(name)
        if role in kept:
            ledger.dropped(f"port {kept[role]} is {role} already", *path)
        else:
            kept[role] = number
            ledger.settle(*path)
            if name != role:
                ledger.partly(f"is named {role}, which says what Slipway sends there", *path)
    if kept and "http" not in kept:
        ledger.partly("none of them is for HTTP, where Slipway asks whether the server is ready: taken for 8080", *at,
                      "ports")  # fmt: skip
    return names, [{"name": role, "containerPort": number} for role, number in kept.items()]


def role_of(name: str) -> str:
    """What a port of this name is for: http, grpc or metrics."""
    return next((role for role, words in _ROLES.items() if any(word in name.lower() for word in words)), "http")


def _probe(given: Mapping[str, Any], names: Mapping[str, int]) -> dict[str, Any]:
    """A probe that takes the place of the engine's; ports by number, since names of ports are Slipway's own."""
    probe = {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    for action in ("httpGet", "tcpSocket"):
        port = probe[action].get("port") if isinstance(probe.get(action), dict) else None
        if isinstance(port, str) and port in names:
            probe[action]["port"] = names[port]
    if "httpGet" not in probe:
        probe["httpGet"] = None  # takes the engine's own away: a probe has one action
    return probe


def _foreign_server(ledger: Ledger, at: Path, engine: str) -> None:
    if engine == "vllm" and ledger.items(*at, "args"):
        convert_arguments(ledger, at)
    elif engine != "slipway" and ledger.get(*at, "args") is not None:
        ledger.move("spec.runtime.args", *at, "args")
        ledger.partly(f"were meant for KServe's runtime; check that {engine} takes them", *at, "args")
    for field, message in (
        ("image", "the image of another server; spec.runtime.image names one for this engine"),
        ("command", "the command of another server"),
        ("args", "arguments of another server"),
    ):
        if ledger.get(*at, field) is not None and not (field == "args" and engine != "slipway"):
            ledger.dropped(message, *at, field)
    for field in ("ports", *_PROBES):
        if ledger.get(*at, field) is not None:
            ledger.unneeded("the engine brings its own", *at, field)
