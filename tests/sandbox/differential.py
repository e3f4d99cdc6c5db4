"""Random requests, good and bad, to an API server: equal seeds ask equal things of any server."""

import copy
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from slipway.kube.transport import Answer, Call

Send = Callable[[Call], Awaitable[Answer]]
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
FOLDERS = {
    "ConfigMap": ("v1", "/api/v1/namespaces/{}/configmaps"),
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/{}/deployments"),
    "ModelDeployment": ("slipway.dev/v1alpha1", "/apis/slipway.dev/v1alpha1/namespaces/{}/modeldeployments"),
}
UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VOLATILE = ("uid", "creationTimestamp", "time", "lastTransitionTime")


@dataclass(frozen=True)
class Step:
    """One request with its answer."""

    call: Call
    code: int
    body: Any

    @property
    def recorded(self) -> dict[str, Any]:
        """The answer as kube-wire's recordings have it, without what no two servers share."""
        return {"response": {"code": self.code, "body": _settled(self.body)}}


def _settled(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: "<volatile>" if key in VOLATILE else _settled(value) for key, value in node.items()}
    if isinstance(node, str):
        return UID.sub("<uid>", node)
    return [_settled(item) for item in node] if isinstance(node, list) else node


@dataclass
class Asker:
    """Asks by chance, using the resource versions and uids that it was told."""

    seed: int
    send: Send
    namespace: str
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = Random(self.seed)
        self.known: dict[str, dict[str, Any]] = {}
        self.stale: dict[str, str] = {}

    async def ask(self, call: Call) -> Step:
        """Send one request and remember what is told of the object."""
        answer = await self.send(call)
        body = json.loads(answer.body) if answer.body[:1] in (b"{", b"[") else answer.body.decode()
        step = Step(call, answer.status, body)
        self.steps.append(step)
        return step

    async def turn(self) -> tuple[str, Step]:
        """One random request about one of a few objects; gives the object's path."""
        kind = self.dice.choice(sorted(FOLDERS))
        version, folder = FOLDERS[kind]
        folder = folder.format(self.namespace)
        name = self.dice.choice(("a", "b"))
        path = f"{folder}/{name}"
        wanted = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **self._content(kind)}
        step = await self.ask(self._call(folder, path, wanted))
        if step.code < 300 and isinstance(step.body, dict) and "uid" in step.body.get("metadata", {}):
            if path in self.known:
                self.stale[path] = self.known[path]["metadata"]["resourceVersion"]
            self.known[path] = step.body
        if step.call.method == "DELETE" and step.code < 300:
            self.known.pop(path, None)
        return path, step

    def _call(self, folder: str, path: str, wanted: dict[str, Any]) -> Call:
        query = (("fieldManager", self.dice.choice(("m1", "m2"))),)
        match self.dice.randrange(12):
            case 0 | 1 | 2:
                return Call("POST", folder, query, self._spoilt(wanted))
            case 3 | 4:
                return Call("PUT", path, query, self._spoilt(self._versioned(path, wanted)))
            case 5 | 6:
                patch = self._spoilt({name: wanted[name] for name in wanted if name in ("data", "spec")})
                return Call("PATCH", path, query, patch, self.dice.choice((MERGE, MERGE, STRATEGIC)))
            case 7:
                labels = {"op": "add", "path": "/metadata/labels", "value": {"a": str(self.dice.randrange(2))}}
                test = {"op": "test", "path": "/metadata/name", "value": self.dice.choice(("a", "b"))}
                return Call("PATCH", path, query, [test, labels], JSON_PATCH)
            case 8 | 9:
                force = (("force", self.dice.choice(("true", "false"))),)
                return Call("PATCH", path, query + force, self._spoilt(wanted), APPLY)
            case 10:
                return Call("DELETE", path, (), self._precondition(path))
        return Call("GET", path)

    def _content(self, kind: str) -> dict[str, Any]:
        number = self.dice.randrange(3)
        if kind == "ConfigMap":
            return {"data": {"k": str(number)}}
        if kind == "ModelDeployment":
            return {"spec": {"versions": [{"name": f"v{number}", "uri": "file:///m"}]}}
        container = {"name": "c", "image": f"img:{number}"}
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        return {"spec": {"replicas": number, "selector": {"matchLabels": labels}, "template": template}}

    def _versioned(self, path: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """With the resource version that is current, one that was, or none."""
        found = [self.known[path]["metadata"]["resourceVersion"]] if path in self.known else []
        found += [self.stale[path]] if path in self.stale else []
        version = self.dice.choice([*found, ""])
        metadata = wanted["metadata"] | ({"resourceVersion": version} if version else {})
        return wanted | {"metadata": metadata}

    def _precondition(self, path: str) -> dict[str, Any] | None:
        uid = self.known[path]["metadata"]["uid"] if path in self.known and self.dice.random() < 0.5 else "other"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return options if self.dice.random() < 0.5 else None

    def _spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Now and then with something in it that is wrong."""
        if self.dice.random() > 0.3:
            return body
        body = copy.deepcopy(body)
        wrong = self.dice.choice(("other", "A_b", "", 5, None))
        match self.dice.randrange(4):
            case 0 if "metadata" in body:
                body["metadata"]["labels"] = {"a b": "c"}
            case 1 if "metadata" in body:
                body["metadata"]["name"] = wrong if isinstance(wrong, str) else "other"
            case 2 if "spec" in body:
                body["spec"] = {**body["spec"], "replicas": self.dice.choice((-1, "x", 1.5))}
            case _:
                part = "data" if "data" in body else "spec"
                body[part] = self.dice.choice(([], "x", 5))
        return body


REASONS: Mapping[int, set[str]] = {
    400: {"BadRequest"},
    404: {"NotFound"},
    409: {"AlreadyExists", "Conflict"},
    415: {"UnsupportedMediaType"},
    422: {"Invalid"},
}
"""Reasons by code, as in the recorded answers of a real server."""
