"""Writing status: only what differs, only over what was read, and never the action, which belongs to people."""

from collections.abc import Mapping
from typing import Any

from slipway.api.status import ModelDeploymentStatus
from slipway.kube.client import Client
from slipway.kube.kinds import MODEL_DEPLOYMENT
from slipway.kube.metadata import key_of, resource_version

__all__ = ["merge_patch", "persist", "status_patch"]

ACTION = "action"
_ABSENT = object()


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that leads from one object to the other; empty when they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name, _ABSENT)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = merge_patch(old, value)
            if inner:
                patch[name] = inner
        elif old is _ABSENT or old != value:
            patch[name] = value
    return patch


def status_patch(raw: Mapping[str, Any], status: ModelDeploymentStatus) -> dict[str, Any]:
    """What is to be written of the status of a ModelDeployment as read; empty when nothing differs."""
    before = {name: value for name, value in (raw.get("status") or {}).items() if name != ACTION}
    after = {name: value for name, value in status.to_wire().items() if name != ACTION}
    return merge_patch(before, after)


async def persist(client: Client, raw: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Write such a patch; returns the object as written.

    Raises :class:`~slipway.kube.failures.ConflictError` when the object has changed since it was read.
    """
    body = {"metadata": {"resourceVersion": resource_version(raw)}, "status": patch}
    return await client.patch(MODEL_DEPLOYMENT, *key_of(raw), body, subresource="status")
