"""Pods and Deployments of the API server as the values that decisions are made on."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from slipway.api.observed import PodView
from slipway.api.revisions import revision_from_definition
from slipway.api.scalars import quantity_value
from slipway.api.timestamps import parse_time
from slipway.kube.metadata import created_at
from slipway.resources.engines.delivered import FETCH
from slipway.resources.engines.server import SERVER
from slipway.resources.workloads import DEFINITION

__all__ = ["GPU_SUFFIX", "ended_text", "has_ended", "pod_view", "replica_failure", "stored_definition"]

GPU_SUFFIX = "/gpu"
"""Ends the names of whole GPUs, whoever made them."""
_MOST_DEVICES = 2**31 - 1
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pod_view(pod: Mapping[str, Any]) -> PodView:
    """What a pod's status says of its server container, or of the one that fetches its model."""
    status = pod.get("status") or {}
    conditions = {entry.get("type"): entry for entry in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    scheduled = conditions.get("PodScheduled") or {}
    server = _server(status)
    waiting = (server.get("state") or {}).get("waiting") or {}
    # The present end counts before the last one: a container that just ended has not been restarted yet.
    ended = (server.get("state") or {}).get("terminated") or (server.get("lastState") or {}).get("terminated") or {}
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    is_ready = ready.get("status") == "True"
    exit_code = ended.get("exitCode")
    return PodView(
        name=pod["metadata"]["name"],
        created_at=created_at(pod),
        ready=is_ready,
        ready_at=_seconds(ready.get("lastTransitionTime")) if is_ready else None,
        unready_since=None if is_ready else _seconds(ready.get("lastTransitionTime")),
        terminating=bool(pod["metadata"].get("deletionTimestamp")),
        restarts=int(server.get("restartCount") or 0),
        waiting_reason=str(waiting.get("reason") or ""),
        terminated_reason=str(ended.get("reason") or status.get("reason") or ""),
        exit_code=int(exit_code) if exit_code is not None else None,
        message=_message(unschedulable, scheduled, ended, waiting, status),
        unschedulable=unschedulable,
        unschedulable_since=_seconds(scheduled.get("lastTransitionTime")) if unschedulable else None,
        scheduled_at=_seconds(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        gpus=_gpus(pod),
        ip=str(status.get("podIP") or ""),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        fetched_digest=_fetched_digest(status),
    )


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is over for good: evicted, refused by its node, or ended with it.

    Its ReplicaSet has made another by then and never looks at it again: it stays, without a device or an address,
    until somebody deletes it or the cluster holds thousands of its like.
    """
    return (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}


def ended_text(pods: Iterable[Mapping[str, Any]]) -> str:
    """Which of these pods ended last and why, in its node's words; empty without any."""
    last = max(pods, key=created_at, default=None)
    if last is None:
        return ""
    status = last.get("status") or {}
    words = [str(status[name]) for name in ("reason", "message") if status.get(name)]
    return ": ".join((f"pod {last['metadata']['name']} ended", *words))


def replica_failure(deployment: Mapping[str, Any]) -> str:
    """Why pods of a Deployment cannot be created, such as an exceeded quota; empty when they can."""
    for entry in (deployment.get("status") or {}).get("conditions") or ():
        if entry.get("type") == "ReplicaFailure" and entry.get("status") == "True":
            return str(entry.get("message") or entry.get("reason") or "pods cannot be created")
    return ""


def stored_definition(deployment: Mapping[str, Any]) -> dict[str, Any] | None:
    """The definition that a Deployment carries in its annotation; None without one, or where somebody broke it."""
    text = (deployment["metadata"].get("annotations") or {}).get(DEFINITION)
    try:
        return readable_definition(json.loads(text)) if text else None
    except ValueError:
        return None


def readable_definition(data: Any) -> dict[str, Any] | None:
    """What is stored as a definition, if a revision can be made of it; None for whatever else somebody put there."""
    if not isinstance(data, dict):
        return None
    try:
        revision_from_definition("", data)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return data


def _server(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The server's container; or the one that fetches its model, while that fails and keeps it from starting."""
    fetching = _named(status.get("initContainerStatuses"), FETCH)
    state = fetching.get("state") or {}
    ended = state.get("terminated") or {}
    fails = ended.get("exitCode", 0) != 0 or (fetching.get("restartCount", 0) > 0 and not ended)
    return fetching if fails else _named(status.get("containerStatuses"), SERVER)


def _fetched_digest(status: Mapping[str, Any]) -> str:
    """What the init container has left as its last words; empty for anything but a digest."""
    ended = (_named(status.get("initContainerStatuses"), FETCH).get("state") or {}).get("terminated") or {}
    words = str(ended.get("message") or "").strip()
    return words if ended.get("exitCode") == 0 and _DIGEST.fullmatch(words) else ""


def _named(containers: Any, name: str) -> Mapping[str, Any]:
    return next((entry for entry in containers or () if entry.get("name") == name), {})


def _message(
    unschedulable: bool,
    scheduled: Mapping[str, Any],
    ended: Mapping[str, Any],
    waiting: Mapping[str, Any],
    status: Mapping[str, Any],
) -> str:
    """The scheduler's words for a pod without a node, else the server's own last ones, else the node's."""
    if unschedulable:
        return str(scheduled.get("message") or "")
    return str(ended.get("message") or waiting.get("message") or status.get("message") or "").strip()


def _seconds(text: Any) -> float | None:
    """A moment that a node wrote; None for one that no clock shows, such as the year 0, which the API server takes."""
    try:
        return parse_time(str(text)) if text else None
    except (ValueError, OverflowError):
        return None


def _gpus(pod: Mapping[str, Any]) -> int:
    total = 0
    for container in (pod.get("spec") or {}).get("containers") or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        total += sum(_whole(amount) for name, amount in limits.items() if name.endswith(GPU_SUFFIX))
    return total


def _whole(amount: Any) -> int:
    """A quantity of devices; 0 for what is none. No node has more than an int32 counts, whatever a pod asks for."""
    try:
        return max(0, min(int(quantity_value(str(amount))), _MOST_DEVICES))
    except ValueError:
        return 0
