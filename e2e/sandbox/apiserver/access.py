"""Who may do what: bearer tokens and RBAC."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .failures import ApiError, forbidden
from .schema import JsonDict
from .store import Store

MASTERS, AUTHENTICATED, UNAUTHENTICATED = "system:masters", "system:authenticated", "system:unauthenticated"
_RBAC = "rbac.authorization.k8s.io"
_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class User:
    """Whoever sends a request."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do. `path` is set for what is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    part: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        """`pods/log`, or `pods`."""
        return f"{self.resource}/{self.part}" if self.part else self.resource


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and, if it is yes, what says so."""

    allowed: bool
    reason: str = ""


def read_tokens(path: Path) -> dict[str, User]:
    """Tokens from a file as kube-apiserver takes it: lines of token,user,uid,"group1,group2"; the uid may be left out.

    With three columns the third is taken for the groups.
    """
    out = {}
    with path.open(newline="") as lines:
        for row in csv.reader(lines):
            if len(row) < 2:
                continue
            token, name = row[0].strip(), row[1].strip()
            listed = row[3] if len(row) > 3 else row[2] if len(row) > 2 else ""
            groups = tuple(filter(None, (group.strip() for group in listed.replace("|", ",").split(","))))
            out[token] = User(name, (*groups, AUTHENTICATED))
    return out


def service_account(namespace: str, name: str) -> User:
    """The user a service account is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups)


class Authenticator:
    """Tells users by their bearer token."""

    def __init__(self, tokens: Mapping[str, User]) -> None:
        self.tokens = dict(tokens)

    def user_of(self, header: str | None) -> User | None:
        """The user; the anonymous one without a token; None for a token nobody knows."""
        if not header:
            return ANONYMOUS
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        found = self.tokens.get(token.strip())
        if found is not None and AUTHENTICATED not in found.groups:
            return User(found.name, (*found.groups, AUTHENTICATED))
        return found


class Authorizer:
    """RBAC over the roles and bindings in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decide(self, user: User, wanted: Attributes) -> Decision:
        """Whether a user may do something."""
        if MASTERS in user.groups:
            return Decision(True)
        for rule, reason in self.rules_for(user, wanted.namespace):
            if _rule_allows(rule, wanted):
                return Decision(True, reason)
        return Decision(False)

    def require(self, user: User, wanted: Attributes) -> None:
        """Raise ApiError 403 if a user may not."""
        if self.decide(user, wanted).allowed:
            return
        if wanted.path:
            message = f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"'
            raise ApiError(403, "Forbidden", message, {})
        scope = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
        what = f'resource "{wanted.full_resource}" in API group "{wanted.group}"'
        why = f'User "{user.name}" cannot {wanted.verb} {what} {scope}'
        raise forbidden(wanted.group, wanted.resource, wanted.name, why)

    def rules_for(self, user: User, namespace: str) -> Iterator[tuple[JsonDict, str]]:
        """The rules that hold for a user in a namespace, each with the sentence that says why."""
        for binding in self._store.select(f"{_RBAC}/clusterrolebindings", ""):
            yield from self._bound(user, binding.obj, "")
        if namespace:
            for binding in self._store.select(f"{_RBAC}/rolebindings", namespace):
                yield from self._bound(user, binding.obj, namespace)

    def _bound(self, user: User, binding: JsonDict, namespace: str) -> Iterator[tuple[JsonDict, str]]:
        subject = next((s for s in binding.get("subjects") or () if _is_subject(user, s, namespace)), None)
        if subject is None:
            return
        reference = binding["roleRef"]
        label = f"{binding['metadata']['name']}/{namespace}" if namespace else binding["metadata"]["name"]
        who = subject["name"]
        if subject["kind"] == "ServiceAccount":
            who = f"{subject['name']}/{subject['namespace']}"
        granted = f'{binding["kind"]} "{label}" of {reference["kind"]} "{reference["name"]}"'
        reason = f'RBAC: allowed by {granted} to {subject["kind"]} "{who}"'
        for rule in self.role_rules(reference, namespace):
            yield rule, reason

    def role_rules(self, reference: JsonDict, namespace: str) -> Iterable[JsonDict]:
        """The rules of the role that a binding names; none if there is no such role."""
        if reference["kind"] == "ClusterRole":
            role = self._store.get(f"{_RBAC}/clusterroles", ("", reference["name"]))
        else:
            role = self._store.get(f"{_RBAC}/roles", (namespace, reference["name"]))
        rules: list[JsonDict] = (role.obj.get("rules") or []) if role is not None else []
        return rules

    def missing(self, user: User, namespace: str, rules: Iterable[JsonDict]) -> list[str]:
        """What of some rules a user does not hold, in words; nobody may grant more than they hold."""
        if MASTERS in user.groups:
            return []
        owned = [held for held, _ in self.rules_for(user, namespace)]
        lacking: dict[tuple[str, str, str, str], list[str]] = {}
        for rule in rules:
            for part in _parts(rule):
                if not any(_rule_allows(held, part) for held in owned):
                    verbs = lacking.setdefault((part.group, part.full_resource, part.path, part.name), [])
                    verbs += [part.verb] if part.verb not in verbs else []
        return sorted(_in_words(*key, verbs) for key, verbs in lacking.items())


def _in_words(group: str, resource: str, path: str, name: str, verbs: list[str]) -> str:
    parts = [f'NonResourceURLs:["{path}"]'] if path else [f'APIGroups:["{group}"]', f'Resources:["{resource}"]']
    if name:
        parts.append(f'ResourceNames:["{name}"]')
    listed = " ".join(f'"{verb}"' for verb in verbs)
    return "{" + ", ".join([*parts, f"Verbs:[{listed}]"]) + "}"


def _is_subject(user: User, subject: JsonDict, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return name in (user.name, "*")
    if kind == "Group":
        return name in user.groups
    account = f"{_ACCOUNT}{subject.get('namespace') or namespace}:{name}"
    return kind == "ServiceAccount" and user.name == account


def _rule_allows(rule: JsonDict, wanted: Attributes) -> bool:
    verbs = rule.get("verbs") or ()
    if wanted.verb not in verbs and "*" not in verbs:
        return False
    if wanted.path:
        return any(_path_matches(pattern, wanted.path) for pattern in rule.get("nonResourceURLs") or ())
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if wanted.group not in groups and "*" not in groups:
        return False
    if not any(
        entry in ("*", wanted.full_resource) or (wanted.part and entry == f"*/{wanted.part}") for entry in resources
    ):
        return False
    names = rule.get("resourceNames") or ()
    return not names or wanted.name in names


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def _parts(rule: JsonDict) -> Iterator[Attributes]:
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Attributes(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                plural, _, part = resource.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Attributes(verb, group, plural, part, name=name)


def escalation(user: User, group: str, plural: str, name: str, missing: list[str]) -> ApiError:
    """403 for a role or binding that grants what its author does not hold."""
    groups = " ".join(f'"{group_name}"' for group_name in user.groups)
    lines = "\n".join(missing)
    why = f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{lines}'
    return forbidden(group, plural, name, why)
