"""The pod template of a revision: restricted, scraped, probed, and drained by the server itself."""

import math
from typing import Any

from slipway.api.revisions import Revision
from slipway.resources.arguments import GOLDENS_PATH, GRPC_PORT, HTTP_PORT, serve_arguments
from slipway.resources.artefacts import supply_mounts, supply_volumes
from slipway.resources.identity import Identity, RenderOptions, revision_labels
from slipway.resources.overlay import lay_over
from slipway.resources.shadow import shadow_mount, shadow_volume

__all__ = ["SERVER", "pod_template"]

SERVER = "server"
"""Name of the container that answers requests."""
DRAIN_MARGIN = 15
"""Seconds between the end of the server's own drain and the kubelet's SIGKILL."""
STARTUP_SECONDS = 3600
"""Longest start of a server before its container is restarted; the rollout's progressDeadline usually ends first."""


def pod_template(identity: Identity, revision: Revision, options: RenderOptions) -> dict[str, Any]:
    """The pod template of a revision with the user's ``podTemplate`` laid over it.

    The user may change everything but the labels by which pods are selected and watched.
    """
    labels = revision_labels(identity, revision.version.name, revision.name)
    template = {
        "metadata": {"labels": labels, "annotations": _annotations()},
        "spec": _pod_spec(identity, revision, options),
    }
    merged = lay_over(template, revision.runtime.pod_template)
    described = merged.get("metadata") or {}
    return merged | {"metadata": {**described, "labels": (described.get("labels") or {}) | labels}}


def _annotations() -> dict[str, str]:
    return {
        "kubectl.kubernetes.io/default-container": SERVER,
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(HTTP_PORT),
        "prometheus.io/scrape": "true",
    }


def _pod_spec(identity: Identity, revision: Revision, options: RenderOptions) -> dict[str, Any]:
    runtime = revision.runtime
    volumes = [{"name": "tmp", "emptyDir": {}}, shadow_volume(identity), *supply_volumes(revision.version)]
    if revision.version.goldens is not None:
        volumes.append({"name": "goldens", "configMap": {"name": revision.version.goldens.config_map}})
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # Variables for every Service of the namespace would make pods depend on their neighbours.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": math.ceil(runtime.termination_grace_period.seconds) + DRAIN_MARGIN,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_server(identity, revision, options)],
        "volumes": volumes,
    }
    if runtime.service_account_name:
        spec["serviceAccountName"] = runtime.service_account_name
    return spec


def _server(identity: Identity, revision: Revision, options: RenderOptions) -> dict[str, Any]:
    runtime = revision.runtime
    mounts = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        shadow_mount(),
        *supply_mounts(revision.version),
    ]
    if revision.version.goldens is not None:
        mounts.append({"name": "goldens", "mountPath": GOLDENS_PATH, "readOnly": True})
    server: dict[str, Any] = {
        "name": SERVER,
        "image": runtime.image or options.runtime_image,
        "args": serve_arguments(identity.name, revision),
        "env": _environment(revision),
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "grpc", "containerPort": GRPC_PORT, "protocol": "TCP"},
        ],
        "startupProbe": _probe("ready", period=1, timeout=1, failures=STARTUP_SECONDS),
        "readinessProbe": _probe("ready", period=2, timeout=2, failures=3),
        # A busy server may answer late; only one that stays silent is restarted.
        "livenessProbe": _probe("live", period=10, timeout=5, failures=6),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    if runtime.resources:
        server["resources"] = runtime.resources
    return server


def _probe(endpoint: str, *, period: int, timeout: int, failures: int) -> dict[str, Any]:
    """A probe of a health endpoint; times in seconds."""
    return {
        "httpGet": {"path": f"/v2/health/{endpoint}", "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _environment(revision: Revision) -> list[dict[str, Any]]:
    """Our variables, then the user's; one of the same name takes the place of ours."""
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
        "NODE_NAME": "spec.nodeName",
    }
    variables: dict[str, dict[str, Any]] = {
        name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()
    }
    # Caches of libraries go below HOME, and only /tmp can be written.
    variables["HOME"] = {"name": "HOME", "value": "/tmp"}  # noqa: S108
    for variable in revision.runtime.env:
        source = {"value": variable.value} if variable.value_from is None else {"valueFrom": variable.value_from}
        variables[variable.name] = {"name": variable.name, **source}
    return list(variables.values())
