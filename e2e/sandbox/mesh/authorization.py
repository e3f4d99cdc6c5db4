"""AuthorizationPolicies as rules of Envoy's RBAC filter."""

from collections.abc import Callable, Iterable, Sequence

from e2e.sandbox.mesh.names import Json, object_key

_JWT = "envoy.filters.http.jwt_authn"
_NOBODY: Json = {"not_id": {"any": True}}
_SOURCE = {"requestPrincipals", "notRequestPrincipals", "principals", "notPrincipals"}
_OPERATION = {"paths", "notPaths", "methods", "notMethods"}


def objection(policy: Json) -> str | None:
    """Why the sandbox's mesh takes no part in an AuthorizationPolicy, if so."""
    spec = policy.get("spec", {})
    if spec.get("action", "ALLOW") not in {"ALLOW", "DENY"}:
        return f"the sandbox does not know the action {spec['action']}"
    for rule in spec.get("rules") or []:
        sources = {name for item in rule.get("from") or [] for name in item.get("source") or {}}
        operations = {name for item in rule.get("to") or [] for name in item.get("operation") or {}}
        unknown = sorted((sources - _SOURCE) | (operations - _OPERATION) | ({"when"} if rule.get("when") else set()))
        if unknown:
            return f"the sandbox does not know {unknown[0]} in an AuthorizationPolicy"
    return None


def rbac_of(policies: Iterable[Json], action: str, issuers: Sequence[str]) -> Json:
    """One rule set of all policies with an action; `issuers` are those whose tokens are checked."""
    rules: Json = {}
    for policy in policies:
        name = "/".join(object_key(policy))
        for number, rule in enumerate(policy.get("spec", {}).get("rules") or []):
            sources = [_source(item.get("source") or {}, issuers) for item in rule.get("from") or []]
            operations = [_operation(item.get("operation") or {}) for item in rule.get("to") or []]
            rules[f"{name}/{number}"] = {
                "principals": sources or [{"any": True}],
                "permissions": operations or [{"any": True}],
            }
    return {"action": action, "policies": rules}


def _source(source: Json, issuers: Sequence[str]) -> Json:
    """All conditions of a source. No client of the sandbox has an identity in the mesh, so it is nobody's."""
    conditions = []
    if source.get("requestPrincipals"):
        conditions.append(_any_of(source["requestPrincipals"], lambda value: _bearer(value, issuers)))
    if source.get("notRequestPrincipals"):
        bearers = _any_of(source["notRequestPrincipals"], lambda value: _bearer(value, issuers))
        conditions.append({"not_id": bearers})
    if source.get("principals"):
        conditions.append(_NOBODY)
    return {"and_ids": {"ids": conditions or [{"any": True}]}}


def _any_of(values: Iterable[str], condition: Callable[[str], Json]) -> Json:
    return {"or_ids": {"ids": [condition(value) for value in values]}}


def _bearer(principal: str, issuers: Sequence[str]) -> Json:
    """Whoever carries a valid token of a principal: ISSUER/SUBJECT, ISSUER/* or * for any."""
    issuer, _, subject = principal.rpartition("/")
    accepted = issuers if principal == "*" else [known for known in issuers if known == issuer]
    if not accepted:
        return _NOBODY
    return {"or_ids": {"ids": [_token(known, "*" if principal == "*" else subject) for known in accepted]}}


def _token(issuer: str, subject: str) -> Json:
    claims = [_claim(issuer, "iss", {"exact": issuer})]
    if subject != "*":
        claims.append(_claim(issuer, "sub", {"exact": subject}))
    return {"and_ids": {"ids": claims}}


def _claim(issuer: str, name: str, value: Json) -> Json:
    path = [{"key": issuer}, {"key": name}]
    matcher = {"filter": _JWT, "path": path, "value": {"string_match": value}}
    return {"sourced_metadata": {"metadata_matcher": matcher}}


def _operation(operation: Json) -> Json:
    conditions = []
    for name, condition in (("paths", _path), ("methods", _method)):
        if operation.get(name):
            conditions.append(_or_rules(operation[name], condition))
        negated = f"not{name.capitalize()}"
        if operation.get(negated):
            conditions.append({"not_rule": _or_rules(operation[negated], condition)})
    return {"and_rules": {"rules": conditions or [{"any": True}]}}


def _or_rules(values: Iterable[str], condition: Callable[[str], Json]) -> Json:
    return {"or_rules": {"rules": [condition(value) for value in values]}}


def _path(value: str) -> Json:
    return {"url_path": {"path": _string(value)}}


def _method(value: str) -> Json:
    return {"header": {"name": ":method", "string_match": _string(value)}}


def _string(value: str) -> Json:
    if value.endswith("*"):
        return {"prefix": value[:-1]} if len(value) > 1 else {"safe_regex": {"regex": ".+"}}
    if value.startswith("*"):
        return {"suffix": value[1:]}
    return {"exact": value}
