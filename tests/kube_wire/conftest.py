"""A running API server and a small client for it."""

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import pytest

from e2e.sandbox.apiserver import ApiServer, User

MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
TOKENS = {
    "admin": User("admin", ("system:masters",)),
    "limited": User("limited"),
    "robot": User("system:serviceaccount:team:robot", ("system:serviceaccounts",)),
}


@dataclass
class Answer:
    code: int
    body: Any
    headers: dict[str, Any] = field(default_factory=dict)

    @property
    def causes(self) -> set[tuple[str, str]]:
        """The causes of a refusal: where and of which sort."""
        return {(cause["field"], cause["reason"]) for cause in self.body["details"].get("causes", ())}


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        who: str = "admin",
        **headers: str,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {who}", **headers}
        data = None
        if body is not None:
            sent["Content-Type"] = kind
            data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.session.request(method, self.url + path, data=data, headers=sent) as response:
            raw = await response.read()
            try:
                parsed = orjson.loads(raw)
            except orjson.JSONDecodeError:
                parsed = raw.decode()
            return Answer(response.status, parsed, dict(response.headers))

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.send("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Answer:
        return await self.send("POST", path, body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Answer:
        return await self.send("PUT", path, body, **more)

    async def patch(self, path: str, body: Any, kind: str = MERGE, **more: Any) -> Answer:
        return await self.send("PATCH", path, body, kind, **more)

    async def apply(self, path: str, body: Any, manager: str, force: bool = False) -> Answer:
        query = f"?fieldManager={manager}" + ("&force=true" if force else "")
        return await self.patch(path + query, body, APPLY)

    async def delete(self, path: str, body: Any = None, **more: Any) -> Answer:
        return await self.send("DELETE", path, body, **more)

    async def watch(self, path: str, who: str = "admin", **headers: str) -> AsyncIterator[dict[str, Any]]:
        sent = {"Authorization": f"Bearer {who}", **headers}
        async with self.session.get(self.url + path, headers=sent) as response:
            async for line in response.content:
                yield orjson.loads(line)


def client_of(server: ApiServer) -> Client:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    return Client(aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)), server.url)


@pytest.fixture
async def server(tmp_path):
    running = ApiServer(tokens=TOKENS, data_dir=tmp_path / "apiserver")
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(server):
    made = client_of(server)
    await made.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    yield made
    await made.session.close()


def deployment(name: str = "web", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "img:1", "env": [{"name": "A", "value": "1"}]}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def definition(schema: dict[str, Any], plural: str = "boats", **version: Any) -> dict[str, Any]:
    kind = plural[:-1].capitalize()
    made = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.yard.example.dev"},
        "spec": {
            "group": "yard.example.dev",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [made],
        },
    }


def boat(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "yard.example.dev/v1", "kind": "Boat", "metadata": {"name": name, **metadata}, "spec": spec}
