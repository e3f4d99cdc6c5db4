"""The sandbox's API server without a network: the operator's transport leads straight into its handlers.

Simulated like the sandbox itself; what is stored, merged, refused and deleted is what the real sandbox would.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson
import yaml
from aiohttp import web
from multidict import CIMultiDict, MultiDict
from slipway.kube.kinds import Kind
from slipway.kube.transport import Answer, Call

from e2e.sandbox.apiserver.access import MASTERS, User
from e2e.sandbox.apiserver.audit import AuditLog
from e2e.sandbox.apiserver.cluster import Cluster
from e2e.sandbox.apiserver.handlers import Handlers
from e2e.sandbox.apiserver.store import Change
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import CRD_FOLDERS

__all__ = ["ADMIN_TOKEN", "Api", "Connection", "Network", "Obj", "Request", "definitions"]

Obj = dict[str, Any]
LOOK = 0.05
"""Seconds between two looks at what cannot be awaited."""
ADMIN_TOKEN = "faults"  # noqa: S105  opens nothing but servers in this process


@dataclass(frozen=True, slots=True)
class Request:
    """A line of the audit log."""

    at: float
    """Virtual seconds."""
    who: str
    call: Call
    status: int

    @property
    def writes(self) -> bool:
        """Whether it asks for a change."""
        return self.call.method != "GET"


class _Incoming:
    """As much of an HTTP request as the handlers look at."""

    def __init__(self, call: Call, token: str) -> None:
        self.method, self.path = call.method, call.path
        self.path_qs = call.path
        self.query = MultiDict(call.query)
        self.headers = CIMultiDict({"Content-Type": call.content_type, "Authorization": f"Bearer {token}"})
        self._body = b"" if call.body is None else orjson.dumps(call.body)

    async def read(self) -> bytes:
        return self._body


def definitions() -> list[Obj]:
    """The CustomResourceDefinitions of Istio and of Slipway."""
    return [
        document
        for folder in CRD_FOLDERS
        for path in sorted((REPOSITORY_ROOT / folder).glob("*.yaml"))
        for document in yaml.load_all(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if document and document.get("kind") == "CustomResourceDefinition"
    ]


class Api:
    """One cluster's API server, with everything that was asked of it."""

    def __init__(self, wall: Callable[[], float], users: Mapping[str, User] | None = None) -> None:
        """``wall`` gives seconds since the epoch; ``users`` by token are those beside the administrator."""
        self._wall = wall
        self._users = {ADMIN_TOKEN: User("faults", (MASTERS,))} | dict(users or {})
        self.audit: list[Request] = []
        self.handlers = self._handlers()

    def _handlers(self) -> Handlers:
        cluster = Cluster(self._users, _soon, clock=lambda: datetime.fromtimestamp(self._wall(), UTC))
        return Handlers(cluster, "", cast(Any, None), AuditLog(Path("/dev/null")))

    @property
    def cluster(self) -> Cluster:
        """What stands behind the server."""
        return self.handlers.cluster

    async def start(self) -> None:
        """Fill the cluster and install the definitions."""
        self.cluster.fill()
        for definition in definitions():
            await self.install(definition)

    async def install(self, definition: Obj) -> None:
        """Create or change a CustomResourceDefinition and wait until it is served."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + definition["metadata"]["name"]
        await self.ask("PATCH", path, definition, content_type="application/apply-patch+yaml")
        spec = definition["spec"]
        place = spec["group"], spec["versions"][0]["name"], spec["names"]["plural"]
        while self.cluster.registry.find(*place) is None:  # noqa: ASYNC110  only asking tells
            await asyncio.sleep(LOOK)

    async def ask(self, method: str, path: str, body: Obj | None = None, content_type: str = "application/json") -> Obj:
        """A request of the administrator's; raises AssertionError when it is refused."""
        query = (("fieldManager", "user"), ("force", "true")) if "apply" in content_type else ()
        answer = await self.answer(Call(method, path, query, body, content_type))
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body.decode()}"
        return cast(Obj, orjson.loads(answer.body))

    async def answer(self, call: Call, token: str = ADMIN_TOKEN) -> Answer:
        """Answer one call of whoever bears this token."""
        response = cast(web.Response, await self.handlers(cast(web.BaseRequest, _Incoming(call, token))))
        return Answer(response.status, response.headers, cast(bytes, response.body))

    async def uninstall(self, name: str) -> None:
        """Delete a CustomResourceDefinition with all its objects."""
        await self.ask("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")

    def serves(self, kind: Kind) -> bool:
        """Whether the server knows a kind."""
        return self.cluster.registry.find(kind.group, kind.version, kind.plural) is not None

    def backup(self) -> Obj:
        """Everything that is stored, as etcd would save it."""
        return self.cluster.store.snapshot()

    def restore(self, backup: Obj) -> None:
        """Start anew with an older state: resource versions go back, and nobody who listens is told anything."""
        self.handlers = self._handlers()
        self.cluster.restore(backup)

    def shelf(self, kind: Kind) -> str:
        """The store's name for a kind."""
        return self.cluster.resource(kind.group, kind.version, kind.plural).storage

    def objects(self, kind: Kind, namespace: str = "") -> list[Obj]:
        """All objects of a kind; they must not be changed."""
        return [stored.obj for stored in self.cluster.store.select(self.shelf(kind), namespace)]

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """One object."""
        stored = self.cluster.store.get(self.shelf(kind), (namespace, name))
        return stored.obj if stored else None

    def put(self, kind: Kind, obj: Obj) -> None:
        """Store an object as it is, unchecked."""
        metadata = obj["metadata"]
        self.cluster.store.put(self.shelf(kind), (metadata["namespace"], metadata["name"]), obj)

    def drop(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        """Remove an object at once."""
        metadata = obj["metadata"]
        self.cluster.store.delete(self.shelf(kind), (metadata["namespace"], metadata["name"]))

    def listen(self, kind: Kind, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Be told every change of a kind; gives what ends that."""
        listeners = self.cluster.store.shelves[self.shelf(kind)].listeners
        listeners.add(listener)
        return lambda: listeners.discard(listener)


def _soon(action: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(action)


@dataclass
class Network:
    """Between one operator, through all its processes, and the server."""

    cut: bool = False
    """Whether nothing comes through until the cut is mended: neither refused nor answered."""
    paths: str = ""
    """The cut concerns only calls with this in their path."""
    refused: bool = False
    """Whether connections are refused, as by a server that is away."""
    tried: int = 0
    """Calls that were sent, whatever became of them."""

    async def carry(self, call: Call) -> None:
        """Carry something over, when that is possible."""
        if self.refused:
            raise ConnectionRefusedError("connection refused")
        while self.cut and self.paths in call.path:  # noqa: ASYNC110  only asking tells
            await asyncio.sleep(LOOK)


@dataclass
class Connection:
    """One client's way to the server: the innermost transport."""

    api: Api
    who: str
    network: Network
    latency: float = 0.002
    """Seconds for a request and as much for its answer."""
    token: str = ADMIN_TOKEN
    """The client's."""

    async def send(self, call: Call) -> Answer:
        """Carry a call to the server and its answer back."""
        self.network.tried += 1
        try:
            async with asyncio.timeout(call.timeout):
                await self._pass(call)
                answer = await self.api.answer(call, self.token)
                now = asyncio.get_running_loop().time()
                self.api.audit.append(Request(now, self.who, call, answer.status))
                await self._pass(call)
                return answer
        except TimeoutError:
            raise TimeoutError("no answer") from None

    async def _pass(self, call: Call) -> None:
        await asyncio.sleep(self.latency)
        await self.network.carry(call)

    async def close(self) -> None:
        """Nothing is held."""
