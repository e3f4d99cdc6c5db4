"""The kinds of objects that Slipway reads or writes, and their places in the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from slipway.api.spec import GROUP, KIND, PLURAL, VERSION

__all__ = [
    "CHILDREN",
    "CONFIG_MAP",
    "CONTROLLER_REVISION",
    "DEPLOYMENT",
    "DESTINATION_RULE",
    "EVENT",
    "LEASE",
    "MESH",
    "MODEL_DEPLOYMENT",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "SERVICE",
    "VIRTUAL_SERVICE",
    "WATCHED",
    "Kind",
    "kind_of",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    name: str
    """CamelCase name, as in ``kind``."""

    @property
    def api_version(self) -> str:
        """As in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Path below the server's address; without a namespace that of the whole cluster."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        parts += ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)


MODEL_DEPLOYMENT = Kind(GROUP, VERSION, PLURAL, KIND)
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
CONTROLLER_REVISION = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
POD = Kind("", "v1", "pods", "Pod")
SERVICE = Kind("", "v1", "services", "Service")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
EVENT = Kind("", "v1", "events", "Event")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
VIRTUAL_SERVICE = Kind("networking.istio.io", "v1", "virtualservices", "VirtualService")
DESTINATION_RULE = Kind("networking.istio.io", "v1", "destinationrules", "DestinationRule")

MESH = (VIRTUAL_SERVICE, DESTINATION_RULE)
"""Kinds of the mesh: all of the cluster's are watched, since hosts may be claimed anywhere; they may be absent."""

CHILDREN = (VIRTUAL_SERVICE, DESTINATION_RULE, POD_DISRUPTION_BUDGET, DEPLOYMENT, SERVICE, CONTROLLER_REVISION)
"""Kinds that Slipway writes, in the order in which what is no longer wanted is deleted: routes go first."""

WATCHED = (MODEL_DEPLOYMENT, DEPLOYMENT, POD, SERVICE, CONTROLLER_REVISION, POD_DISRUPTION_BUDGET, *MESH)
"""Kinds kept in the cache."""

_KNOWN = {(kind.api_version, kind.name): kind for kind in (*WATCHED, CONFIG_MAP, EVENT, LEASE)}


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """The kind of an object; raises KeyError for one that is unknown here."""
    return _KNOWN[str(obj["apiVersion"]), str(obj["kind"])]
