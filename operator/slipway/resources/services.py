"""The Services in front of the pods: one of the ModelDeployment, and one per revision where the provider needs it."""

from typing import Any

from slipway.api.status import VersionStatus
from slipway.resources.identity import MODEL_DEPLOYMENT_LABEL, Identity, metadata, revision_labels, selector_labels

__all__ = ["SERVICE_GRPC_PORT", "SERVICE_HTTP_PORT", "revision_service", "service"]

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
