"""The kinds of objects that Slipway reads or writes, and their places in the API."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from slipway.api.spec import GROUP, KIND, PLURAL, VERSION

__all__ = [
    "APIS",
    "AUTHORIZATION_POLICY",
    "CHILDREN",
    "CONFIG_MAP",
    "CONTROLLER_REVISION",
    "DEPLOYMENT",
    "DESTINATION_RULE",
    "ENVOY_FILTER",
    "EVENT",
    "HORIZONTAL_POD_AUTOSCALER",
    "HTTP_ROUTE",
    "LEASE",
    "MESH",
    "MODEL_DEPLOYMENT",
    "OPTIONAL",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "POLICIES",
    "REQUEST_AUTHENTICATION",
    "SCALED_OBJECT",
    "SCALERS",
    "SERVICE",
    "SHARED",
    "VIRTUAL_SERVICE",
    "WATCHED",
    "Kind",
    "kind_of",
    "watched",
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
ENVOY_FILTER = Kind("networking.istio.io", "v1alpha3", "envoyfilters", "EnvoyFilter")
REQUEST_AUTHENTICATION = Kind("security.istio.io", "v1", "requestauthentications", "RequestAuthentication")
AUTHORIZATION_POLICY = Kind("security.istio.io", "v1", "authorizationpolicies", "AuthorizationPolicy")
HTTP_ROUTE = Kind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
HORIZONTAL_POD_AUTOSCALER = Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
SCALED_OBJECT = Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject")

MESH = (VIRTUAL_SERVICE, DESTINATION_RULE)
"""Kinds that every object with provider istio needs."""

POLICIES = (REQUEST_AUTHENTICATION, AUTHORIZATION_POLICY, ENVOY_FILTER)
"""Kinds of Istio that only some objects need."""

SCALERS = (HORIZONTAL_POD_AUTOSCALER, SCALED_OBJECT)
"""Kinds that set the replicas of a Deployment."""

OPTIONAL = (*MESH, *POLICIES, HTTP_ROUTE, *SCALERS)
"""Kinds that the API server may not know."""

APIS: Mapping[str, tuple[Kind, ...]] = {
    "istio": MESH,
    "istio-policies": POLICIES,
    "gateway-api": (HTTP_ROUTE,),
    "hpa": (HORIZONTAL_POD_AUTOSCALER,),
    "keda": (SCALED_OBJECT,),
}
"""The optional kinds by the names under which an installation allows them."""

SHARED = (*MESH, HTTP_ROUTE, *SCALERS)
"""Kinds of which all of the cluster's are watched, not only our own: hosts may be claimed anywhere, and anybody's
scaler may name our Deployments."""

CHILDREN = (
    VIRTUAL_SERVICE,
    HTTP_ROUTE,
    DESTINATION_RULE,
    *POLICIES,
    HORIZONTAL_POD_AUTOSCALER,
    POD_DISRUPTION_BUDGET,
    DEPLOYMENT,
    CONFIG_MAP,
    SERVICE,
    CONTROLLER_REVISION,
)
"""Kinds that Slipway writes, in the order in which what is no longer wanted is deleted: routes go first."""

WATCHED = (
    MODEL_DEPLOYMENT,
    DEPLOYMENT,
    POD,
    SERVICE,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    POD_DISRUPTION_BUDGET,
    *OPTIONAL,
)
"""Kinds kept in the cache."""

_KNOWN = {(kind.api_version, kind.name): kind for kind in (*WATCHED, EVENT, LEASE)}


def watched(apis: Collection[str]) -> tuple[Kind, ...]:
    """The kinds to watch where only these of :data:`APIS` are allowed."""
    allowed = {kind for name in apis for kind in APIS[name]}
    return tuple(kind for kind in WATCHED if kind not in OPTIONAL or kind in allowed)


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """The kind of an object; raises KeyError for one that is unknown here."""
    return _KNOWN[str(obj["apiVersion"]), str(obj["kind"])]
