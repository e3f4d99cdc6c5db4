"""A Deployment's status: numbers and conditions, free of any I/O."""

from __future__ import annotations

from datetime import datetime

from .client import Obj
from .pods import condition
from .rolling import Fences
from .times import from_text, to_text

TIMED_OUT = "ProgressDeadlineExceeded"
NO_DEADLINE = 2**31 - 1


def size(replica_set: Obj) -> int:
    """The size a ReplicaSet should have."""
    return int(replica_set["spec"].get("replicas", 0))


def total(sets: list[Obj], field: str) -> int:
    """A status number summed over ReplicaSets."""
    return sum(int((item.get("status") or {}).get(field) or 0) for item in sets)


def set_condition(conditions: list[Obj], kind: str, status: str, reason: str, message: str, moment: datetime) -> None:
    """Set a condition in place; an update that says nothing new keeps its times."""
    old = next((entry for entry in conditions if entry["type"] == kind), None)
    if old is not None and old["status"] == status and old.get("reason") == reason and old.get("message") == message:
        return
    transition = old["lastTransitionTime"] if old is not None and old["status"] == status else to_text(moment)
    entry = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastUpdateTime": to_text(moment),
        "lastTransitionTime": transition,
    }
    if old is None:
        conditions.append(entry)
    else:
        conditions[conditions.index(old)] = entry


def numbers(deployment: Obj, sets: list[Obj], new: Obj | None) -> Obj:
    """The counts of the status, zeros as None."""
    available = total(sets, "availableReplicas")
    return {
        "observedGeneration": deployment["metadata"].get("generation"),
        "replicas": total(sets, "replicas") or None,
        "updatedReplicas": total([new], "replicas") or None if new else None,
        "readyReplicas": total(sets, "readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(0, sum(size(item) for item in sets) - available) or None,
    }


def is_complete(deployment: Obj, status: Obj) -> bool:
    """Whether every replica is up to date and available and no old one is left."""
    wanted = deployment["spec"].get("replicas", 1)
    return all((status[name] or 0) == wanted for name in ("updatedReplicas", "replicas", "availableReplicas"))


def is_progressing(deployment: Obj, status: Obj) -> bool:
    """Whether the new status shows any step forward from the old one."""
    old = deployment.get("status") or {}

    def old_pods(numbers_: Obj) -> int:
        return (numbers_.get("replicas") or 0) - (numbers_.get("updatedReplicas") or 0)

    return (
        (status["updatedReplicas"] or 0) > (old.get("updatedReplicas") or 0)
        or old_pods(status) < old_pods(old)
        or (status["readyReplicas"] or 0) > (old.get("readyReplicas") or 0)
        or (status["availableReplicas"] or 0) > (old.get("availableReplicas") or 0)
    )


def seconds_to_deadline(deployment: Obj, moment: datetime) -> float | None:
    """Seconds until the progress deadline, negative when over; None when none is running."""
    deadline = deployment["spec"].get("progressDeadlineSeconds", 600)
    progressing = condition(deployment, "Progressing")
    if deadline == NO_DEADLINE or progressing is None or progressing.get("reason") == "NewReplicaSetAvailable":
        return None
    last = progressing.get("lastUpdateTime") or progressing["lastTransitionTime"]
    return float(deadline - (moment - from_text(last)).total_seconds())


def availability(deployment: Obj, status: Obj, limits: Fences, conditions: list[Obj], moment: datetime) -> None:
    """Set the Available condition in place."""
    if (status["availableReplicas"] or 0) >= deployment["spec"].get("replicas", 1) - limits.unavailable:
        message = "Deployment has minimum availability."
        set_condition(conditions, "Available", "True", "MinimumReplicasAvailable", message, moment)
    else:
        message = "Deployment does not have minimum availability."
        set_condition(conditions, "Available", "False", "MinimumReplicasUnavailable", message, moment)


def progress(deployment: Obj, status: Obj, new: Obj | None, conditions: list[Obj], moment: datetime) -> None:
    """Set the Progressing condition in place, by Kubernetes' rules."""
    if deployment["spec"].get("progressDeadlineSeconds", 600) == NO_DEADLINE:
        return
    current = next((entry for entry in conditions if entry["type"] == "Progressing"), None)
    what = f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'
    settled = (status["replicas"] or 0) == (status["updatedReplicas"] or 0)
    if settled and current is not None and current.get("reason") == "NewReplicaSetAvailable":
        return
    if is_complete(deployment, status):
        message = f"{what} has successfully progressed."
        set_condition(conditions, "Progressing", "True", "NewReplicaSetAvailable", message, moment)
    elif is_progressing(deployment, status):
        message = f"{what} is progressing."
        if current is not None and current["status"] == "True":
            # A step forward starts the deadline anew, with the transition time unchanged.
            current.update(reason="ReplicaSetUpdated", message=message, lastUpdateTime=to_text(moment))
        else:
            set_condition(conditions, "Progressing", "True", "ReplicaSetUpdated", message, moment)
    elif current is not None and current.get("reason") != "DeploymentPaused":
        left = seconds_to_deadline({**deployment, "status": {"conditions": conditions}}, moment)
        if current.get("reason") == TIMED_OUT or (left is not None and left <= 0):
            message = f"{what} has timed out progressing."
            set_condition(conditions, "Progressing", "False", TIMED_OUT, message, moment)


def replica_failure(sets: list[Obj], new: Obj | None, conditions: list[Obj], moment: datetime) -> None:
    """Carry a ReplicaSet's failure to create pods over to the Deployment."""
    failing = [new] if new is not None and condition(new, "ReplicaFailure") else sets
    failure = next((entry for item in failing if (entry := condition(item, "ReplicaFailure"))), None)
    conditions[:] = [entry for entry in conditions if entry["type"] != "ReplicaFailure" or failure]
    if failure is not None:
        set_condition(conditions, "ReplicaFailure", "True", failure["reason"], failure["message"], moment)
