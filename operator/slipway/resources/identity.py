"""Whose objects they are: names, labels and the owner reference that every object carries."""

from dataclasses import dataclass
from typing import Any

from slipway.api.spec import GROUP, KIND, VERSION

__all__ = [
    "ENGINE_LABEL",
    "MANAGED_BY",
    "MODEL_DEPLOYMENT_LABEL",
    "REVISION_LABEL",
    "VERSION_LABEL",
    "Identity",
    "RenderOptions",
    "metadata",
    "revision_labels",
    "selector_labels",
    "service_host",
]

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "slipway"
MODEL_DEPLOYMENT_LABEL = f"{GROUP}/model-deployment"
VERSION_LABEL = f"{GROUP}/version"
REVISION_LABEL = f"{GROUP}/revision"
ENGINE_LABEL = f"{GROUP}/engine"
"""On pods of other servers than Slipway's own: whose metrics have other names, and no labels of ours."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The ModelDeployment that owns the objects."""

    name: str
    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What the installation decides, not the user's object."""

    runtime_image: str
    """Container image of pods whose runtime names none."""
    cluster_domain: str = "cluster.local"
    """DNS domain of the cluster."""
    mesh_principal: str = ""
    """The operator's own identity in the mesh, such as cluster.local/ns/slipway-system/sa/slipway: it may probe servers
    that ask everybody else for a token, and its proxy is told of their pods. Empty where it has no sidecar."""


def service_host(identity: Identity, options: RenderOptions) -> str:
    """The full in-mesh name of the Service."""
    return f"{identity.name}.{identity.namespace}.svc.{options.cluster_domain}"


def owner_labels(identity: Identity) -> dict[str, str]:
    """Labels of every object of a ModelDeployment. Labels of the ModelDeployment itself are never copied."""
    return {MANAGED_BY_LABEL: MANAGED_BY, MODEL_DEPLOYMENT_LABEL: identity.name}


def revision_labels(identity: Identity, version: str, revision: str) -> dict[str, str]:
    """Labels of the objects and pods of one revision."""
    return owner_labels(identity) | {VERSION_LABEL: version, REVISION_LABEL: revision}


def selector_labels(identity: Identity, revision: str) -> dict[str, str]:
    """The labels that select a revision's pods; a Deployment's selector cannot be changed, so neither may these."""
    return {MODEL_DEPLOYMENT_LABEL: identity.name, REVISION_LABEL: revision}


def metadata(identity: Identity, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an owned object; without ``labels``, those that belong to no single revision."""
    return {
        "name": name,
        "namespace": identity.namespace,
        "labels": labels or owner_labels(identity),
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": identity.name,
                "uid": identity.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
