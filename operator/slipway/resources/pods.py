"""The pod template of a revision: restricted, scraped, probed, and drained before it goes."""

import math
from collections.abc import Mapping
from typing import Any

from slipway.api.revisions import Revision
from slipway.api.spec import GROUP
from slipway.api.versions import Engine
from slipway.resources.engines import Server, preset_of
from slipway.resources.engines.server import SERVER
from slipway.resources.environment import environment
from slipway.resources.identity import ENGINE_LABEL, Identity, RenderOptions, revision_labels
from slipway.resources.overlay import lay_over

__all__ = ["SERVER", "pod_template"]

METRICS_PORT = f"{GROUP}/metrics-port"
"""Annotation of pods whose metrics have a port of their own."""
DRAIN_MARGIN = 15
"""Seconds between the end of the server's own drain and the kubelet's SIGKILL."""
STARTUP_SECONDS = 3600
"""Longest start of a server before its container is restarted; the rollout's progressDeadline usually ends first."""


def pod_template(identity: Identity, revision: Revision, options: RenderOptions) -> dict[str, Any]:
    """The pod template of a revision with the user's ``podTemplate`` laid over it.

    The user may change everything but the labels by which pods are selected and watched.
    """
    labels = revision_labels(identity, revision.version.name, revision.name)
    if revision.runtime.engine is not Engine.SLIPWAY:
        labels[ENGINE_LABEL] = revision.runtime.engine.value
    server = preset_of(revision.runtime.engine)(identity, revision, options)
    template = {
        "metadata": {"labels": labels, "annotations": _annotations(server)},
        "spec": _pod_spec(revision, server),
    }
    merged = lay_over(template, revision.runtime.pod_template)
    described = _mapping(merged.get("metadata"))
    return merged | {"metadata": {**described, "labels": {**_mapping(described.get("labels")), **labels}}}


def _mapping(value: Any) -> Mapping[str, Any]:
    """What is an object; revisions older than a rule may hold anything."""
    return value if isinstance(value, Mapping) else {}


def _annotations(server: Server) -> dict[str, str]:
    annotations = {
        "kubectl.kubernetes.io/default-container": SERVER,
        "prometheus.io/path": "/metrics",
        "prometheus.io/port": str(server.metrics_port),
        "prometheus.io/scrape": "true",
    }
    if "metrics" in server.ports:
        # A mesh that merges metrics rewrites the other one; the chart's PodMonitor goes by this.
        annotations[METRICS_PORT] = str(server.metrics_port)
    return annotations


def _pod_spec(revision: Revision, server: Server) -> dict[str, Any]:
    runtime = revision.runtime
    drain = server.pre_stop + math.ceil(runtime.termination_grace_period.seconds)
    security: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if server.user is not None:
        # The same for all containers, so that one can read what another has written.
        security |= {"runAsUser": server.user, "runAsGroup": server.user, "fsGroup": server.user}
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # Variables for every Service of the namespace would make pods depend on their neighbours.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": drain + DRAIN_MARGIN,
        "securityContext": security,
        "containers": [_server(revision, server)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *server.volumes],
    }
    if server.init_containers:
        spec["initContainers"] = list(server.init_containers)
    if runtime.service_account_name:
        spec["serviceAccountName"] = runtime.service_account_name
    return spec


def _server(revision: Revision, server: Server) -> dict[str, Any]:
    runtime = revision.runtime
    container: dict[str, Any] = {
        "name": SERVER,
        "image": server.image,
        "args": list(server.args),
        "env": environment(runtime, server.environment),
        "ports": [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in server.ports.items()],
        "startupProbe": _probe(server.health.ready, period=1, timeout=1, failures=STARTUP_SECONDS),
        "readinessProbe": _probe(server.health.ready, period=2, timeout=2, failures=3),
        # A busy server may answer late; only one that stays silent is restarted.
        "livenessProbe": _probe(server.health.live, period=10, timeout=5, failures=6),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *server.mounts],  # noqa: S108
    }
    if server.command:
        container["command"] = list(server.command)
    if server.pre_stop:
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": server.pre_stop}}}
    if runtime.resources:
        container["resources"] = runtime.resources
    return container


def _probe(path: str, *, period: int, timeout: int, failures: int) -> dict[str, Any]:
    """A probe of a health endpoint; times in seconds."""
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
