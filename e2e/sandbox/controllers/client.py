"""A lean asyncio client for any Kubernetes API server, working on plain dictionaries."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import orjson
import yaml

Obj = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PUT_OFF = 10
"""Times that a request is sent to a server that puts it off."""
METADATA_ONLY = "application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
WATCH_LINE_LIMIT = 1 << 24


class ApiError(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, code: int, reason: str, message: str, body: Obj | None = None) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.body = body or {}

    @property
    def not_found(self) -> bool:
        """True when the object does not exist (any more)."""
        return self.code == 404

    @property
    def conflict(self) -> bool:
        """True for a lost update or a failed precondition."""
        return self.code == 409


@dataclass(frozen=True)
class Resource:
    """One resource of the API, as discovery names it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1` or `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, an object or a subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)

    def path_of(self, obj: Obj, subresource: str | None = None) -> str:
        """The URL path of this object."""
        meta = obj["metadata"]
        return self.path(meta.get("namespace"), meta["name"], subresource)


PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS = Resource("", "v1", "events", "Event")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


@dataclass(frozen=True)
class Access:
    """How to reach an API server: its URL, what to trust, and who we are."""

    url: str
    token: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Access:
        """Read the current context of a kubeconfig file; inline certificates go to private temporary files."""
        config = yaml.safe_load(path.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"]).get("user") or {}
        return cls(
            url=cluster["server"].rstrip("/"),
            token=user.get("token"),
            ca_file=_file_of(cluster, "certificate-authority", path.parent),
            cert_file=_file_of(user, "client-certificate", path.parent),
            key_file=_file_of(user, "client-key", path.parent),
        )

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS settings for this server."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


def _named(entries: list[Obj], name: str) -> Obj:
    for entry in entries:
        if entry["name"] == name:
            return entry
    raise KeyError(f"kubeconfig has no entry named {name!r}")


def _file_of(section: Obj, field: str, folder: Path) -> str | None:
    if section.get(f"{field}-data"):
        with tempfile.NamedTemporaryFile(prefix="kubeconfig-", suffix=".pem", delete=False) as handle:
            handle.write(base64.b64decode(section[f"{field}-data"]))
        return handle.name
    value = section.get(field)
    return str(folder / value) if value else None


class ApiClient:
    """Requests to one API server. Use as an async context manager or call `close`."""

    def __init__(self, access: Access, field_manager: str) -> None:
        self.access = access
        self._field_manager = field_manager
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"User-Agent": self._field_manager}
            if self.access.token:
                headers["Authorization"] = f"Bearer {self.access.token}"
            secure = self.access.ssl_context() if self.access.url.startswith("https") else False
            connector = aiohttp.TCPConnector(ssl=secure, limit=0)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=headers, timeout=timeout, read_bufsize=1 << 20
            )
        return self._session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        seconds: float = 30,
    ) -> Obj:
        """Send one request and return the JSON answer; raises ApiError when the server refuses.

        What a busy server puts off with 429 and ``Retry-After`` is sent again, as every client of Kubernetes does: a
        real one puts off the first requests for a kind whose definition is new.
        """
        headers = {"Accept": accept}
        data = None
        if body is not None:
            data = orjson.dumps(body)
            headers["Content-Type"] = content_type
        timeout = aiohttp.ClientTimeout(total=seconds)
        for rest in reversed(range(PUT_OFF)):
            async with self._open().request(
                method, self.access.url + path, params=params, data=data, headers=headers, timeout=timeout
            ) as response:
                raw = await response.read()
                wait = response.headers.get("Retry-After", "") if response.status == 429 and rest else ""
                if not wait.isdigit():
                    break
            await asyncio.sleep(int(wait))
        if response.status >= 400:
            raise _error(response.status, raw)
        return orjson.loads(raw) if raw else {}

    async def text(self, path: str, params: Mapping[str, str] | None = None) -> str:
        """Read something that is no JSON, such as a log; raises ApiError when the server refuses."""
        async with self._open().get(self.access.url + path, params=params) as response:
            raw = await response.read()
            if response.status >= 400:
                raise _error(response.status, raw)
            return raw.decode("utf-8", "replace")

    def _writes(self) -> dict[str, str]:
        return {"fieldManager": self._field_manager}

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Obj:
        """Read one object."""
        return await self.request("GET", resource.path(namespace, name))

    async def find(self, resource: Resource, namespace: str | None, name: str) -> Obj | None:
        """Read one object, or None when it does not exist."""
        try:
            return await self.get(resource, namespace, name)
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def list_all(
        self, resource: Resource, *, namespace: str | None = None, field_selector: str = "", metadata_only: bool = False
    ) -> Obj:
        """Read a whole collection as one List object."""
        params = {"fieldSelector": field_selector} if field_selector else {}
        accept = METADATA_ONLY.format(list="List") if metadata_only else "application/json"
        return await self.request("GET", resource.path(namespace), params=params, accept=accept)

    async def create(self, resource: Resource, obj: Obj) -> Obj:
        """Create an object in the namespace it names."""
        path = resource.path(obj["metadata"].get("namespace"))
        return await self.request("POST", path, obj, params=self._writes())

    async def replace(self, resource: Resource, obj: Obj, subresource: str | None = None) -> Obj:
        """PUT an object or its subresource."""
        return await self.request("PUT", resource.path_of(obj, subresource), obj, params=self._writes())

    async def merge(self, resource: Resource, obj: Obj, patch: Obj, subresource: str | None = None) -> Obj:
        """JSON merge patch; the uid of `obj` is a precondition, so a namesake is never touched."""
        body = {**patch, "metadata": {**patch.get("metadata", {}), "uid": obj["metadata"]["uid"]}}
        path = resource.path_of(obj, subresource)
        return await self.request("PATCH", path, body, params=self._writes(), content_type=MERGE_PATCH)

    async def delete(
        self, resource: Resource, obj: Obj, *, policy: str = "Background", grace: int | None = None
    ) -> Obj:
        """Delete exactly this object (uid precondition) with a propagation policy and a grace period in seconds."""
        options: Obj = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": policy,
            "preconditions": {"uid": obj["metadata"]["uid"]},
        }
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return await self.request("DELETE", resource.path_of(obj), options)

    async def watch(
        self,
        resource: Resource,
        resource_version: str,
        *,
        namespace: str | None = None,
        field_selector: str = "",
        metadata_only: bool = False,
        seconds: int = 300,
    ) -> AsyncIterator[Obj]:
        """Yield watch events until the server ends the watch; an ERROR event raises ApiError."""
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        if field_selector:
            params["fieldSelector"] = field_selector
        accept = METADATA_ONLY.format(list="") if metadata_only else "application/json"
        url = self.access.url + resource.path(namespace)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=seconds + 60)
        async with self._open().get(url, params=params, headers={"Accept": accept}, timeout=timeout) as response:
            if response.status >= 400:
                raise _error(response.status, await response.read())
            async for line in _lines(response.content):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(status.get("code", 500), status.get("reason", ""), status.get("message", ""), status)
                yield event


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length (aiohttp's own line iterator refuses long ones)."""
    pending = bytearray()
    async for chunk in stream.iter_any():
        pending += chunk
        if len(pending) > WATCH_LINE_LIMIT:
            raise ApiError(500, "InternalError", "a watch event is longer than 16 MiB")
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            if line.strip():
                yield line


def _error(code: int, raw: bytes) -> ApiError:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        return ApiError(code, "", raw[:500].decode("utf-8", "replace"))
    return ApiError(code, body.get("reason", ""), body.get("message", ""), body)


CONNECTION_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
