"""A pod's status from its containers' states, as a kubelet writes it; free of any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from e2e.sandbox.controllers.client import Obj
from e2e.sandbox.controllers.quantities import quality_of_service
from e2e.sandbox.controllers.times import to_text

from .states import ContainerView, Role, Terminated, Waiting


@dataclass(frozen=True)
class PodView:
    """Everything the status of a pod is made from."""

    pod: Obj
    containers: tuple[ContainerView, ...]
    address: str
    host_address: str
    started: datetime
    prepared: bool
    """Volumes are ready and containers may start."""
    finished: bool
    """No container will run again."""


def pod_status(view: PodView, conditions: list[Obj], moment: datetime) -> Obj:
    """The status to write; `conditions` are the ones known so far, whose transition times are kept."""
    phase = _phase(view)
    status: Obj = {
        "phase": phase,
        "conditions": _conditions(view, phase, conditions, moment),
        "hostIP": view.host_address,
        "hostIPs": [{"ip": view.host_address}],
        "podIP": view.address,
        "podIPs": [{"ip": view.address}],
        "startTime": to_text(view.started),
        "qosClass": quality_of_service(view.pod),
        "containerStatuses": [view_.to_api() for view_ in view.containers if view_.role is Role.MAIN],
    }
    first = [view_.to_api() for view_ in view.containers if view_.role is not Role.MAIN]
    if first:
        status["initContainerStatuses"] = first
    return status


def _phase(view: PodView) -> str:
    main = [entry for entry in view.containers if entry.role is Role.MAIN]
    if view.finished:
        codes = [entry.state.exit_code if isinstance(entry.state, Terminated) else 1 for entry in main]
        return "Succeeded" if codes and not any(codes) else "Failed"
    if not _initialized(view):
        return "Pending"
    if all(isinstance(entry.state, Waiting) and entry.last is None for entry in main):
        return "Pending"
    return "Running"


def _initialized(view: PodView) -> bool:
    return view.prepared and not _incomplete(view)


def _incomplete(view: PodView) -> list[str]:
    names = []
    for entry in view.containers:
        done = isinstance(entry.state, Terminated) and entry.state.exit_code == 0
        if (entry.role is Role.INIT and not done) or (entry.role is Role.SIDECAR and not entry.started):
            names.append(entry.name)
    return names


def _conditions(view: PodView, phase: str, known: list[Obj], moment: datetime) -> list[Obj]:
    incomplete = _incomplete(view)
    unready = [entry.name for entry in view.containers if entry.role is not Role.INIT and not entry.ready]
    if phase == "Succeeded":
        ready = (False, "PodCompleted", "")
    elif phase == "Failed":
        ready = (False, "PodFailed", "")
    elif unready or not view.prepared:
        ready = (False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        ready = (True, "", "")
    initialized = (
        (False, "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
        if incomplete and phase != "Succeeded"
        else (True, "", "")
    )
    wanted = {
        "PodReadyToStartContainers": (view.prepared and not view.finished, "", ""),
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": (True, "", ""),
    }
    mine = [_condition(kind, known, moment, *value) for kind, value in wanted.items()]
    return mine + [entry for entry in known if entry["type"] not in wanted]


def _condition(kind: str, known: list[Obj], moment: datetime, value: bool, reason: str, message: str) -> Obj:
    status = "True" if value else "False"
    old = next((entry for entry in known if entry["type"] == kind), None)
    since = old["lastTransitionTime"] if old is not None and old["status"] == status else to_text(moment)
    entry: Obj = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    if reason:
        entry["reason"] = reason
    if message:
        entry["message"] = message
    return entry
