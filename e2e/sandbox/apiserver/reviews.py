"""Access reviews: who am I, and may I (or somebody else) do this?"""

from __future__ import annotations

from . import fieldmanagers
from .access import MASTERS, Attributes, Authorizer, User
from .failures import bad_request
from .fieldmanagers import UPDATE, Manager
from .kinds import Resource
from .schema import JsonDict
from .writes import Write, Writer


def answer(
    writer: Writer, authorizer: Authorizer, resource: Resource, body: JsonDict, user: User, write: Write
) -> JsonDict:
    """The review with its status filled in. Nothing is stored."""
    obj = writer.decode(resource, body, write)
    manager = Manager(write.manager, UPDATE, resource.api_version)
    obj = fieldmanagers.record_update(resource.schema, resource.empty(), obj, manager, writer.now())
    spec = obj.get("spec") or {}
    if resource.plural == "selfsubjectreviews":
        obj["status"] = {"userInfo": {"username": user.name, "groups": list(user.groups)}}
    elif resource.plural == "selfsubjectrulesreviews":
        obj["status"] = _rules(authorizer, user, spec.get("namespace") or "default")
    else:
        subject = user
        if resource.plural == "subjectaccessreviews":
            if not spec.get("user") and not spec.get("groups"):
                raise bad_request("at least one of user or group must be specified")
            subject = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
        obj["status"] = _verdict(authorizer, subject, _wanted(spec))
    return obj


def _wanted(spec: JsonDict) -> Attributes:
    on, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (on is None) == (path is None):
        raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if path is not None:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    assert on is not None
    return Attributes(
        on.get("verb", ""),
        on.get("group", ""),
        on.get("resource", ""),
        on.get("subresource", ""),
        on.get("namespace", ""),
        on.get("name", ""),
    )


def _verdict(authorizer: Authorizer, user: User, wanted: Attributes) -> JsonDict:
    decision = authorizer.decide(user, wanted)
    status: JsonDict = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def _rules(authorizer: Authorizer, user: User, namespace: str) -> JsonDict:
    resource_rules: list[JsonDict] = []
    path_rules: list[JsonDict] = []
    if MASTERS in user.groups:
        resource_rules.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        path_rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    for rule, _ in authorizer.rules_for(user, namespace):
        (path_rules if rule.get("nonResourceURLs") else resource_rules).append(rule)
    return {"resourceRules": resource_rules, "nonResourceRules": path_rules, "incomplete": False}
