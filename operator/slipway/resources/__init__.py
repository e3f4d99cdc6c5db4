"""The Kubernetes objects that a ModelDeployment wants, as plain dicts in the order they may be applied. Pure."""

from slipway.resources.desired import APPLIED_HASH, desired
from slipway.resources.identity import (
    MANAGED_BY,
    MODEL_DEPLOYMENT_LABEL,
    REVISION_LABEL,
    VERSION_LABEL,
    Identity,
    RenderOptions,
    service_host,
)
from slipway.resources.pods import pod_template
from slipway.resources.services import pods_host

__all__ = [
    "APPLIED_HASH",
    "MANAGED_BY",
    "MODEL_DEPLOYMENT_LABEL",
    "REVISION_LABEL",
    "VERSION_LABEL",
    "Identity",
    "RenderOptions",
    "desired",
    "pod_template",
    "pods_host",
    "service_host",
]
