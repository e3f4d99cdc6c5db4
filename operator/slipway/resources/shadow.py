"""Repeating stable's requests to a candidate: what stable's servers read to know whom to ask, and its address.

The ConfigMap is mounted, as an optional volume, into every pod; so that it can come, change and go without a restart.
It exists while there is a candidate whose servers are ready and verified. Servers read their file again once the
kubelet has brought it up to date, which may take a minute or so.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, Stage, VersionStatus
from slipway.resources.identity import Identity, RenderOptions, metadata
from slipway.resources.services import SERVICE_HTTP_PORT, revision_service

__all__ = ["SHADOW_FILE", "shadow_mount", "shadow_objects", "shadow_volume", "shadowed"]

SHADOW_KEY = "shadow.json"
SHADOW_PATH = "/etc/slipway/shadow"
SHADOW_FILE = f"{SHADOW_PATH}/{SHADOW_KEY}"
"""Where servers find whom to ask."""
_VOLUME = "shadow"


def shadow_volume(identity: Identity) -> dict[str, Any]:
    """The volume of a pod."""
    return {"name": _VOLUME, "configMap": {"name": _config_name(identity), "optional": True}}


def shadow_mount() -> dict[str, Any]:
    """Its place in the server's container."""
    return {"name": _VOLUME, "mountPath": SHADOW_PATH, "readOnly": True}


def shadowed(spec: ModelDeploymentSpec, status: ModelDeploymentStatus) -> VersionStatus | None:
    """The candidate that stable's requests are repeated to at present."""
    rollout, stable = status.rollout, status.in_role(Role.STABLE)
    if not spec.rollout.shadow.percent or rollout is None or rollout.outcome is not None:
        return None
    if rollout.stage is Stage.FINISHED or stable is None or not stable.ready_replicas:
        return None
    candidate = next((entry for entry in status.versions if entry.revision == rollout.to_revision), None)
    if candidate is None or candidate.role is not Role.CANDIDATE or candidate.verified != "Passed":
        return None
    return candidate if candidate.ready_replicas else None


def shadow_objects(
    identity: Identity,
    spec: ModelDeploymentSpec,
    status: ModelDeploymentStatus,
    options: RenderOptions,
    present: Iterable[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The candidate's Service, unless ``present`` has it already, and the ConfigMap; nothing without a candidate."""
    candidate, stable = shadowed(spec, status), status.in_role(Role.STABLE)
    if candidate is None or stable is None:
        return []
    objects: list[dict[str, Any]] = []
    if not any(item["kind"] == "Service" and item["metadata"]["name"] == candidate.revision for item in present):
        objects.append(revision_service(identity, candidate))
    return [*objects, _config_map(identity, spec, stable, candidate, options)]


def _config_map(
    identity: Identity,
    spec: ModelDeploymentSpec,
    stable: VersionStatus,
    candidate: VersionStatus,
    options: RenderOptions,
) -> dict[str, Any]:
    host = f"{candidate.revision}.{identity.namespace}.svc.{options.cluster_domain}"
    content = {
        "target": f"http://{host}:{SERVICE_HTTP_PORT}",
        "stable": stable.revision,
        "candidate": candidate.revision,
        "percent": spec.rollout.shadow.percent,
        "compare": spec.rollout.shadow.compare.value,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(identity, _config_name(identity)),
        "data": {SHADOW_KEY: json.dumps(content, sort_keys=True)},
    }


def _config_name(identity: Identity) -> str:
    return f"{identity.name}-shadow"
