"""A Deployment, with its HorizontalPodAutoscaler and Services, as a ModelDeployment."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.conversion.ledger import Ledger, NotConvertibleError
from slipway.conversion.metadata import convert_metadata
from slipway.conversion.pods import SERVER, convert_container, convert_pod, role_of
from slipway.conversion.replicas import convert_autoscaler
from slipway.conversion.storage import own_artefact

__all__ = ["convert_deployment", "scales", "selects"]

TEMPLATE = ("spec", "template")
POD = (*TEMPLATE, "spec")


def scales(scaler: Mapping[str, Any], deployment: Mapping[str, Any]) -> bool:
    """Whether a HorizontalPodAutoscaler is meant for a Deployment."""
    target = Ledger(scaler).table("spec", "scaleTargetRef")
    wanted = Ledger(deployment).text("metadata", "name")
    return target.get("kind") == "Deployment" and target.get("name") == wanted and _together(scaler, deployment)


def selects(service: Mapping[str, Any], deployment: Mapping[str, Any]) -> bool:
    """Whether a Service leads to the pods of a Deployment."""
    selector = Ledger(service).table("spec", "selector")
    labels = Ledger(deployment).table(*TEMPLATE, "metadata", "labels")
    return bool(selector) and selector.items() <= labels.items() and _together(service, deployment)


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return Ledger(one).text("metadata", "namespace") == Ledger(other).text("metadata", "namespace")


def convert_deployment(ledger: Ledger, scaler: Ledger | None, services: Sequence[Ledger]) -> None:
    """Fill the ledger of the Deployment, and those of what goes with it; raises NotConvertibleError."""
    convert_metadata(ledger)
    containers = ledger.items(*POD, "containers")
    if not containers or not isinstance(containers[0], dict):
        raise NotConvertibleError("spec.template has no container")
    server = (*POD, "containers", 0)
    ledger.set("spec.versions", [{"name": "v1"}])
    ledger.set("spec.runtime.engine", "custom")
    overlay = convert_container(ledger, server, "custom")
    own_artefact(ledger, server)
    _port(ledger, services, server, overlay)
    ledger.unneeded("the image goes on serving; it has to speak the Open Inference Protocol", *server, "name")
    beside = _beside(ledger)
    if overlay or beside:
        ledger.set("spec.runtime.podTemplate.spec.containers", [{"name": SERVER, **overlay}, *beside])
    convert_pod(ledger, POD)
    _pod_metadata(ledger)
    _replicas(ledger, scaler)
    _rest(ledger)
    for service in services:
        _service(ledger, service)


def _port(ledger: Ledger, services: Sequence[Ledger], server: tuple[str | int, ...], overlay: dict[str, Any]) -> None:
    """A container need not say where it listens: a Service may, by number."""
    if overlay.get("ports"):
        return
    found: dict[str, int] = {}
    for service in services:
        for number, _ in enumerate(service.items("spec", "ports")):
            at = ("spec", "ports", number)
            port = service.whole(*at, "targetPort")
            port = service.whole(*at, "port") if port is None and service.get(*at, "targetPort") is None else port
            if port is not None and port not in found.values():
                found.setdefault(role_of(service.text(*at, "name")), port)
    if found:
        overlay["ports"] = [{"name": role, "containerPort": port} for role, port in found.items()]
    if "http" in found:
        return
    ledger.partly(
        "nothing says where it listens: taken for port 8080; name another one http in spec.runtime.podTemplate", *server
    )


def _beside(ledger: Ledger) -> list[Any]:
    beside = []
    for number, container in list(enumerate(ledger.items(*POD, "containers")))[1:]:
        path = (*POD, "containers", number)
        if isinstance(container, dict) and isinstance(container.get("name"), str) and container["name"] != SERVER:
            ledger.settle(*path)
            ledger.partly("runs in the pod, but requests go straight to the first container", *path)
            beside.append(container)
    return beside


def _pod_metadata(ledger: Ledger) -> None:
    """Labels that select stay behind: with them the old Service would lead to Slipway's pods as well."""
    selector = ledger.table("spec", "selector", "matchLabels")
    kept: dict[str, Any] = {}
    for key, value in ledger.table(*TEMPLATE, "metadata", "labels").items():
        path = (*TEMPLATE, "metadata", "labels", key)
        if key in selector:
            ledger.unneeded("selects the old pods; Slipway's have labels of their own", *path)
        else:
            kept[key] = value
            ledger.settle(*path)
    if kept:
        ledger.set("spec.runtime.podTemplate.metadata.labels", kept)
    if ledger.table(*TEMPLATE, "metadata", "annotations"):
        ledger.move("spec.runtime.podTemplate.metadata.annotations", *TEMPLATE, "metadata", "annotations")
    if "creationTimestamp" in ledger.table(*TEMPLATE, "metadata"):
        ledger.unneeded("written by the API server", *TEMPLATE, "metadata", "creationTimestamp")


def _replicas(ledger: Ledger, scaler: Ledger | None) -> None:
    if scaler is not None:
        convert_autoscaler(ledger, scaler)
        if ledger.get("spec", "replicas") is not None:
            ledger.unneeded("the autoscaler decides", "spec", "replicas")
        return
    ledger.set("spec.autoscaling.mode", "None")
    ledger.move("spec.replicas", "spec", "replicas")


def _rest(ledger: Ledger) -> None:
    if ledger.get("spec", "selector") is not None:
        ledger.unneeded("Slipway selects by its own labels", "spec", "selector")
    if ledger.text("spec", "strategy", "type") == "Recreate":
        ledger.place("spec.rollout.strategy", "Recreate", "spec", "strategy", "type")
    elif ledger.get("spec", "strategy") is not None:
        ledger.dropped("spec.rollout says how versions follow each other; spec.rollout.maxSurgeGPUs: 0 uses no spare "
                       "GPU", "spec", "strategy")  # fmt: skip
    deadline = ledger.whole("spec", "progressDeadlineSeconds")
    if deadline is not None:
        ledger.place("spec.rollout.progressDeadline", f"{deadline}s", "spec", "progressDeadlineSeconds")
    ledger.move("spec.rollout.revisionHistoryLimit", "spec", "revisionHistoryLimit")
    for field in ("minReadySeconds", "paused"):
        if ledger.get("spec", field) is not None:
            ledger.dropped("has no counterpart", "spec", field)


def _service(ledger: Ledger, service: Ledger) -> None:
    name = ledger.text("metadata", "name")
    if service.text("metadata", "name") == name:
        service.partly("Slipway makes a Service of this name, with ports 80 and 9000: delete this one when you switch")
    else:
        service.dropped(f"clients reach the model at the Service {name}, ports 80 and 9000, once it is switched")
