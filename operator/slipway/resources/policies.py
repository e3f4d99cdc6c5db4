"""Istio's policies at the pods' own proxies: who may send requests, and how many."""

from typing import Any

from slipway.api.spec import ModelDeploymentSpec
from slipway.api.traffic import Jwt
from slipway.resources.identity import MODEL_DEPLOYMENT_LABEL, Identity, RenderOptions, metadata

__all__ = ["OPEN_PATHS", "policies", "rate_limit"]

SECURITY = "security.istio.io/v1"
OPEN_PATHS = ("/v2/health/*", "/health", "/metrics")
"""Paths that need no token: probes (``/health`` is vLLM's) and scrapes carry none."""
SLOWEST_WHOLE_RATE = 20
"""Requests per second up to which tokens come one by one."""

_FILTER = "envoy.filters.http.local_ratelimit"
_FILTER_TYPE = "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_ALWAYS = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}


def policies(identity: Identity, spec: ModelDeploymentSpec, options: RenderOptions) -> list[dict[str, Any]]:
    """The policies that the spec asks for; none by default."""
    objects: list[dict[str, Any]] = []
    jwt = spec.traffic.auth.jwt
    if jwt.issuer:
        tenants = spec.runtime.tenants
        claims_header = tenants.header if tenants.claim else ""
        objects.append(_request_authentication(identity, jwt, claims_header))
        objects.append(_authorization_policy(identity, jwt, options))
    requests_per_second = spec.traffic.resilience.rate_limit.requests_per_second
    if requests_per_second > 0:
        objects.append(rate_limit(identity, requests_per_second))
    return objects


def _request_authentication(identity: Identity, jwt: Jwt, claims_header: str) -> dict[str, Any]:
    """Checks tokens: one that is not valid is answered 401, none at all passes here.

    The claims of a valid one go to the servers in ``claims_header``, which clients cannot set then.
    """
    # The servers' own repeats to a candidate under comparison need the token as well.
    rule: dict[str, Any] = {"issuer": jwt.issuer, "forwardOriginalToken": True}
    if jwt.jwks_uri:
        rule["jwksUri"] = jwt.jwks_uri
    if jwt.audiences:
        rule["audiences"] = list(jwt.audiences)
    if claims_header:
        rule["outputPayloadToHeader"] = claims_header
    return {
        "apiVersion": SECURITY,
        "kind": "RequestAuthentication",
        "metadata": metadata(identity, identity.name),
        "spec": {"selector": {"matchLabels": _pods(identity)}, "jwtRules": [rule]},
    }


def _authorization_policy(identity: Identity, jwt: Jwt, options: RenderOptions) -> dict[str, Any]:
    """Asks for a token: a request without one of this issuer is answered 403.

    It denies rather than allows, so that no other policy of the namespace can open the servers again.
    """
    source: dict[str, Any] = {"notRequestPrincipals": [f"{jwt.issuer}/*"]}
    if options.mesh_principal:
        source["notPrincipals"] = [options.mesh_principal]
    rule = {"from": [{"source": source}], "to": [{"operation": {"notPaths": list(OPEN_PATHS)}}]}
    return {
        "apiVersion": SECURITY,
        "kind": "AuthorizationPolicy",
        "metadata": metadata(identity, identity.name),
        "spec": {"selector": {"matchLabels": _pods(identity)}, "action": "DENY", "rules": [rule]},
    }


def rate_limit(identity: Identity, requests_per_second: float) -> dict[str, Any]:
    """A token bucket at each pod's proxy; what goes beyond it is answered 429. Istio has no kind of its own for it."""
    patch = {
        "applyTo": "HTTP_FILTER",
        "match": {
            "context": "SIDECAR_INBOUND",
            "listener": {"filterChain": {"filter": {"name": "envoy.filters.network.http_connection_manager"}}},
        },
        "patch": {
            "operation": "INSERT_BEFORE",
            "value": {
                "name": _FILTER,
                "typed_config": {
                    "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
                    "type_url": _FILTER_TYPE,
                    "value": {
                        "stat_prefix": "slipway_rate_limit",
                        "token_bucket": _token_bucket(requests_per_second),
                        "filter_enabled": _ALWAYS,
                        "filter_enforced": _ALWAYS,
                    },
                },
            },
        },
    }
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": metadata(identity, identity.name),
        "spec": {"workloadSelector": {"labels": _pods(identity)}, "configPatches": [patch]},
    }


def _token_bucket(requests_per_second: float) -> dict[str, Any]:
    """A bucket for the requests of one second; Envoy fills it no more often than every 50 ms, by whole tokens."""
    if requests_per_second <= SLOWEST_WHOLE_RATE:
        burst = max(1, round(requests_per_second))
        return {"max_tokens": burst, "tokens_per_fill": 1, "fill_interval": f"{1 / requests_per_second:.6f}s"}
    tokens = round(requests_per_second)
    return {"max_tokens": tokens, "tokens_per_fill": tokens, "fill_interval": "1s"}


def _pods(identity: Identity) -> dict[str, str]:
    return {MODEL_DEPLOYMENT_LABEL: identity.name}
