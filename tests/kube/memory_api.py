"""A small API server in memory, behind the client's transport: for unit tests, no proof of how Kubernetes behaves.

Objects have uid, generation and resourceVersion; writes conflict as they should; status is a subresource of
ModelDeployments. Apply merges maps and replaces lists. Faults can be put in front of any call.
"""

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from slipway.kube.transport import Answer, Call

Object = dict[str, Any]


class Died(BaseException):
    """The process under test is killed; nothing may catch it."""


class MemoryApi:
    """Implements :class:`slipway.kube.transport.Transport`."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.calls: list[Call] = []
        self.faults: list[Callable[[Call], Answer | None]] = []
        self.die_after: int | None = None
        self.writes = 0
        self.unknown: set[str] = set()
        self.admit: Callable[[Object], Object] = lambda obj: obj
        self._versions = itertools.count(100)
        self._uids = itertools.count(1)
        self._version = 100
        self.now = "2026-01-01T00:00:00Z"

    async def close(self) -> None:
        pass

    async def send(self, call: Call) -> Answer:
        self.calls.append(call)
        for fault in self.faults:
            answer = fault(call)
            if answer is not None:
                return answer
        if call.method == "GET":
            return self._read(call)
        if self.die_after is not None and self.writes >= self.die_after:
            raise Died
        self.writes += 1
        return self._write(call)

    def put(self, obj: Object) -> Object:
        """Create or overwrite an object as if somebody else had."""
        plural = PLURALS[obj["kind"]]
        metadata = obj["metadata"]
        stored = self.objects.get((plural, metadata.get("namespace", ""), metadata["name"]))
        return self._store(plural, copy.deepcopy(obj), stored)

    def get(self, plural: str, namespace: str, name: str) -> Object:
        return self.objects[plural, namespace, name]

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        return self.objects.get((plural, namespace, name))

    def drop(self, plural: str, namespace: str, name: str) -> Object:
        self._version = next(self._versions)
        return self.objects.pop((plural, namespace, name))

    def mutations(self) -> list[Call]:
        return [call for call in self.calls if call.method != "GET"]

    def _read(self, call: Call) -> Answer:
        plural, namespace, name, _ = parse(call.path)
        if plural in self.unknown:
            return Answer(404, {}, b"404 page not found\n")
        if name:
            found = self.objects.get((plural, namespace, name))
            return ok(found) if found else status(404, "NotFound", f"{plural} {name} not found")
        query = dict(call.query)
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        items = [
            {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
            for (kind, place, _), obj in sorted(self.objects.items())
            if kind == plural
            and namespace in ("", place)
            and wanted.items() <= (obj["metadata"].get("labels") or {}).items()
        ]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0))
        page = items[start : start + limit] if limit else items
        metadata = {"resourceVersion": str(self._version)}
        if limit and start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return ok({"kind": "List", "metadata": metadata, "items": page})

    def _write(self, call: Call) -> Answer:
        plural, namespace, name, subresource = parse(call.path)
        if plural in self.unknown:
            return Answer(404, {}, b"404 page not found\n")
        body = copy.deepcopy(call.body)
        stored = self.objects.get((plural, namespace, name or body["metadata"]["name"]))
        if call.method == "POST":
            return status(409, "AlreadyExists", "exists") if stored else ok(self._store(plural, body, None), 201)
        if call.method == "DELETE":
            return self._delete(stored, plural, namespace, name, body)
        if stored is None:
            if call.content_type == "application/apply-patch+yaml":
                return ok(self._store(plural, body, None), 201)
            return status(404, "NotFound", "not found")
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version is not None and version != stored["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        return ok(self._store(plural, self._merged(call, stored, body, subresource), stored))

    def _merged(self, call: Call, stored: Object, body: Object, subresource: str):
        if call.method == "PUT":
            return body
        changed = merge(copy.deepcopy(stored), body)
        changed["metadata"] = merge(copy.deepcopy(stored["metadata"]), body.get("metadata") or {})
        if subresource == "status":
            return {**copy.deepcopy(stored), "status": changed.get("status")}
        if PLURALS["ModelDeployment"] in call.path:
            changed["status"] = stored.get("status")
        return changed

    def _delete(self, stored: Object | None, plural: str, namespace: str, name: str, body: Object) -> Answer:
        if stored is None:
            return status(404, "NotFound", "not found")
        if body["preconditions"]["uid"] != stored["metadata"]["uid"]:
            return status(409, "Conflict", "the UID in the precondition does not match")
        self.drop(plural, namespace, name)
        return ok({"kind": "Status", "status": "Success"})

    def _store(self, plural: str, obj: Object, stored: Object | None) -> Object:
        obj = self.admit(obj)
        metadata = obj["metadata"]
        before = stored["metadata"] if stored else {}
        metadata["uid"] = before.get("uid") or metadata.get("uid") or f"uid-{next(self._uids)}"
        metadata["creationTimestamp"] = before.get("creationTimestamp") or metadata.get("creationTimestamp") or self.now
        generation = before.get("generation", 0)
        metadata["generation"] = generation + 1 if not stored or stored.get("spec") != obj.get("spec") else generation
        metadata["resourceVersion"] = before.get("resourceVersion", "0")
        if stored == obj:
            return stored
        self._version = next(self._versions)
        metadata["resourceVersion"] = str(self._version)
        self.objects[plural, metadata.get("namespace", ""), metadata["name"]] = obj
        return obj


PLURALS = {
    "ModelDeployment": "modeldeployments",
    "Deployment": "deployments",
    "Service": "services",
    "Pod": "pods",
    "ControllerRevision": "controllerrevisions",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "VirtualService": "virtualservices",
    "DestinationRule": "destinationrules",
    "EnvoyFilter": "envoyfilters",
    "RequestAuthentication": "requestauthentications",
    "AuthorizationPolicy": "authorizationpolicies",
    "HTTPRoute": "httproutes",
    "ConfigMap": "configmaps",
    "Lease": "leases",
    "Event": "events",
}


def parse(path: str) -> tuple[str, str, str, str]:
    """Plural, namespace, name and subresource of a path."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource = [*parts, "", ""][:3]
    return plural, namespace, name, subresource


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def ok(body: Any, code: int = 200) -> Answer:
    return Answer(code, {}, json.dumps(body).encode())


def status(code: int, reason: str, message: str, **headers: str) -> Answer:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Answer(code, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode())
