"""The Services in front of the pods: one of the ModelDeployment, and one per revision where the provider needs it.

Another one stands in front of nothing: by it the operator's own proxy knows the pods, where it has one.
"""

from collections.abc import Iterable
from typing import Any

from slipway.api.status import VersionStatus
from slipway.resources.identity import MODEL_DEPLOYMENT_LABEL, Identity, metadata, revision_labels, selector_labels

__all__ = ["SERVICE_GRPC_PORT", "SERVICE_HTTP_PORT", "pods_host", "pods_service", "revision_service", "service"]

SERVICE_HTTP_PORT = 80
SERVICE_GRPC_PORT = 9000


def service(identity: Identity, receiver: VersionStatus | None = None) -> dict[str, Any]:
    """The Service of the ModelDeployment, in front of the pods of all revisions or of the ``receiver`` alone.

    All is for a mesh that splits them into subsets; without one, a client must not reach a revision that has no weight.
    """
    selector = {MODEL_DEPLOYMENT_LABEL: identity.name}
    if receiver is not None:
        selector = selector_labels(identity, receiver.revision)
    return _service(metadata(identity, identity.name), selector)


def revision_service(identity: Identity, entry: VersionStatus) -> dict[str, Any]:
    """The Service of one revision, under its name."""
    labels = revision_labels(identity, entry.name, entry.revision)
    return _service(metadata(identity, entry.revision, labels), selector_labels(identity, entry.revision))


def pods_service(identity: Identity, ports: Iterable[int]) -> dict[str, Any]:
    """The headless Service by whose name the operator asks single pods, on their own HTTP ports.

    A proxy sends what goes to the bare address of a pod as it is, without the mesh's TLS and without an identity: pods
    that take nothing else (mode STRICT), or no stranger without a token, refuse it. A request that bears the name of a
    headless Service goes to the address that it was sent to, with both. Such a Service has no ports of its own.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(identity, _pods_name(identity.name)),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            # The proxy is to know of a pod before the pod is asked.
            "publishNotReadyAddresses": True,
            "selector": {MODEL_DEPLOYMENT_LABEL: identity.name},
            "ports": [
                {"name": f"http-{number}", "port": number, "targetPort": number, "protocol": "TCP"}
                for number in sorted(set(ports))
            ],
        },
    }


def pods_host(namespace: str, name: str, cluster_domain: str) -> str:
    """The full name of the headless Service of a ModelDeployment's pods."""
    return f"{_pods_name(name)}.{namespace}.svc.{cluster_domain}"


def _pods_name(name: str) -> str:
    return f"{name}-pods"


def _service(about: dict[str, Any], selector: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": about,
        "spec": {
            "type": "ClusterIP",
            "selector": selector,
            "ports": [
                {"name": "http", "port": SERVICE_HTTP_PORT, "targetPort": "http", "protocol": "TCP"},
                {"name": "grpc", "port": SERVICE_GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"},
            ],
        },
    }
