"""Istio's policies for pods (tokens, authorization, local rate limits) as settings of Envoy's routes.

In a cluster each pod's own proxy enforces them. The sandbox has one Envoy in front of all pods, so it enforces them
there, for requests to a Service of which some pod is selected; a limit per pod becomes one for all its ready pods.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from e2e.sandbox.mesh.authorization import rbac_of
from e2e.sandbox.mesh.names import Json, object_key
from e2e.sandbox.mesh.registry import Service

JWT_FILTER = "envoy.filters.http.jwt_authn"
DENY_FILTER = "envoy.filters.http.rbac.deny"
ALLOW_FILTER = "envoy.filters.http.rbac.allow"
RATE_LIMIT_FILTER = "envoy.filters.http.local_ratelimit"
_FILTERS = "type.googleapis.com/envoy.extensions.filters.http"
JWT_TYPE = f"{_FILTERS}.jwt_authn.v3.JwtAuthentication"
RATE_LIMIT_TYPE = f"{_FILTERS}.local_ratelimit.v3.LocalRateLimit"

UNKNOWN_KEYS = json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "kid": "none", "k": secrets.token_urlsafe(32)}]})
"""Stands in for keys that could not be fetched: as with istiod, no token is valid then."""


@dataclass(frozen=True)
class PolicyObjects:
    """The policies of the cluster, and the issuers' keys (a JWKS as text) by the address they were fetched from."""

    authentications: tuple[Json, ...] = ()
    authorizations: tuple[Json, ...] = ()
    envoy_filters: tuple[Json, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)


def key_address(rule: Json) -> str:
    """Where a token rule's keys are to be fetched, or the issuer whose discovery document says so."""
    address: str = rule.get("jwksUri") or rule.get("issuer", "")
    return address


def key_addresses(authentications: Iterable[Json]) -> set[str]:
    """All addresses that keys are needed from."""
    return {key_address(rule) for item in authentications for rule in _rules(item) if not rule.get("jwks")}


def jwt_filter(policies: PolicyObjects) -> Json:
    """The configuration of Envoy's token filter: one provider per token rule, one requirement per object."""
    providers: Json = {}
    requirements: Json = {}
    for item in policies.authentications:
        name = "/".join(object_key(item))
        alternatives: list[Json] = []
        for number, rule in enumerate(_rules(item)):
            provider = f"{name}/{number}"
            providers[provider] = _provider(rule, policies.keys)
            alternatives.append({"provider_name": provider})
        requirements[name] = {"requires_any": {"requirements": [*alternatives, {"allow_missing": {}}]}}
    return {"@type": JWT_TYPE, "providers": providers, "requirement_map": requirements}


def merged(older: Json, newer: Json) -> Json:
    """A configuration of the token filter that routes of both can name; where they differ, the newer one holds."""
    return {
        "@type": JWT_TYPE,
        "providers": {**older["providers"], **newer["providers"]},
        "requirement_map": {**older["requirement_map"], **newer["requirement_map"]},
    }


def objection(envoy_filter: Json) -> str | None:
    """Why the sandbox's mesh takes no part in an EnvoyFilter, if so."""
    patches = envoy_filter.get("spec", {}).get("configPatches") or []
    if all(_limit(patch) is not None for patch in patches):
        return None
    return "the sandbox knows local rate limits of inbound requests only"


def enforced(virtual_hosts: Iterable[Json], services: Mapping[str, Service], policies: PolicyObjects) -> list[Json]:
    """The virtual hosts with the policies of the pods behind their routes."""
    return [_enforced_host(host, services, policies) for host in virtual_hosts]


def _enforced_host(host: Json, services: Mapping[str, Service], policies: PolicyObjects) -> Json:
    routes = []
    limits: Json = {}
    for route in host["routes"]:
        service = _service_of(route, services)
        if service is None:
            routes.append(route)
            continue
        # One bucket for all routes of a host, as they lead to the same pods.
        limits = limits or _rate_limit(service, policies)
        settings = {**route.get("typed_per_filter_config", {}), **_access(service, policies)}
        routes.append({**route, "typed_per_filter_config": settings} if settings else route)
    result = {**host, "routes": routes}
    return {**result, "typed_per_filter_config": {RATE_LIMIT_FILTER: limits}} if limits else result


def _service_of(route: Json, services: Mapping[str, Service]) -> Service | None:
    action = route.get("route", {})
    clusters = [item["name"] for item in action.get("weighted_clusters", {}).get("clusters", [])]
    clusters += [action["cluster"]] if "cluster" in action else []
    return services.get(clusters[0].split("|")[3]) if clusters else None


def _access(service: Service, policies: PolicyObjects) -> Json:
    settings: Json = {}
    selecting = list(_selecting(policies.authentications, service))
    issuers = [rule.get("issuer", "") for item in selecting for rule in _rules(item)]
    if selecting:
        kind = f"{_FILTERS}.jwt_authn.v3.PerRouteConfig"
        settings[JWT_FILTER] = {"@type": kind, "requirement_name": "/".join(object_key(selecting[0]))}
    chosen = list(_selecting(policies.authorizations, service))
    for action, name in (("DENY", DENY_FILTER), ("ALLOW", ALLOW_FILTER)):
        listed = [item for item in chosen if item.get("spec", {}).get("action", "ALLOW") == action]
        if listed:
            rules = rbac_of(listed, action, issuers)
            settings[name] = {"@type": f"{_FILTERS}.rbac.v3.RBACPerRoute", "rbac": {"rules": rules}}
    return settings


def _rate_limit(service: Service, policies: PolicyObjects) -> Json:
    for item in _selecting(policies.envoy_filters, service):
        for patch in item.get("spec", {}).get("configPatches") or []:
            limit = _limit(patch)
            if limit is not None:
                pods = sum(1 for endpoint in service.endpoints if endpoint.matches(_selector(item)))
                bucket = {**limit["token_bucket"]}
                for count in ("max_tokens", "tokens_per_fill"):
                    bucket[count] = bucket.get(count, 1) * max(1, pods)
                return {"@type": RATE_LIMIT_TYPE, **limit, "token_bucket": bucket}
    return {}


def _limit(patch: Json) -> Json | None:
    """The rate limit that a patch of an EnvoyFilter inserts, if that is what it does."""
    context = (patch.get("match") or {}).get("context")
    value = (patch.get("patch") or {}).get("value") or {}
    typed = value.get("typed_config") or {}
    if patch.get("applyTo") != "HTTP_FILTER" or context != "SIDECAR_INBOUND":
        return None
    if typed.get("type_url") != RATE_LIMIT_TYPE or "token_bucket" not in typed.get("value", {}):
        return None
    return dict(typed["value"])


def _rules(authentication: Json) -> list[Json]:
    return list(authentication.get("spec", {}).get("jwtRules") or [])


def _selector(item: Json) -> Mapping[str, str]:
    spec = item.get("spec", {})
    labels: Mapping[str, str] = (spec.get("selector") or {}).get("matchLabels") or {}
    return labels or (spec.get("workloadSelector") or {}).get("labels") or {}


def _selecting(items: Iterable[Json], service: Service) -> Iterator[Json]:
    for item in items:
        namespace, _ = object_key(item)
        selector = _selector(item)
        if namespace == service.namespace and any(endpoint.matches(selector) for endpoint in service.endpoints):
            yield item


def _provider(rule: Json, keys: Mapping[str, str]) -> Json:
    provider: Json = {
        "issuer": rule.get("issuer", ""),
        "local_jwks": {"inline_string": rule.get("jwks") or keys.get(key_address(rule), UNKNOWN_KEYS)},
        "payload_in_metadata": rule.get("issuer", ""),
        "forward": bool(rule.get("forwardOriginalToken")),
    }
    if rule.get("audiences"):
        provider["audiences"] = list(rule["audiences"])
    if rule.get("outputPayloadToHeader"):
        provider["forward_payload_header"] = rule["outputPayloadToHeader"]
    return provider
