"""A few lines of API server, for the faults a real one shows only now and then."""

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any, Self

from aiohttp import web

from e2e.sandbox.mesh.names import Json, object_key

TOKEN = "stub-token"


class StubApi:
    """List (in pages) and watch of whatever objects a test puts in; can forget its history and cut its watches."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Json]] = defaultdict(dict)
        self._history: list[tuple[int, str, Json]] = []
        self._version = 1
        self._oldest = 0
        self._changed = asyncio.Condition()
        self._generation = 0
        self._runner: web.AppRunner | None = None
        self.missing: set[str] = set()
        self.page_size = 500
        self.calls: Counter[str] = Counter()
        self.url = ""

    async def start(self) -> Self:
        application = web.Application()
        application.router.add_get("/{path:.+}", self._get)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        await self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    async def put(self, path: str, item: Json) -> None:
        """Create or replace an object."""
        known = object_key(item) in self._objects[path]
        await self._record(path, "MODIFIED" if known else "ADDED", item)

    async def delete(self, path: str, namespace: str, name: str) -> None:
        await self._record(path, "DELETED", self._objects[path][namespace, name])

    async def cut_watches(self) -> None:
        """End all watches, as a server does on time-out."""
        async with self._changed:
            self._generation += 1
            self._changed.notify_all()

    async def forget_history(self) -> None:
        """Answer 410 to watches that start before now."""
        self._version += 1
        self._oldest = self._version
        await self.cut_watches()

    async def _record(self, path: str, kind: str, item: Json) -> None:
        async with self._changed:
            self._version += 1
            stored = json.loads(json.dumps(item))
            stored["metadata"]["resourceVersion"] = str(self._version)
            if kind == "DELETED":
                del self._objects[path][object_key(item)]
            else:
                self._objects[path][object_key(item)] = stored
            self._history.append((self._version, path, {"type": kind, "object": stored}))
            self._changed.notify_all()

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({"code": 401}, status=401)
        path = request.path
        if path in self.missing:
            return web.json_response({"code": 404}, status=404)
        if request.query.get("watch") == "true":
            return await self._watch(request, path, int(request.query["resourceVersion"]))
        self.calls[f"list {path}"] += 1
        return web.json_response(self._page(path, int(request.query.get("continue", 0))))

    def _page(self, path: str, start: int) -> Json:
        items = list(self._objects[path].values())
        end = start + self.page_size
        metadata: dict[str, Any] = {"resourceVersion": str(self._version)}
        if end < len(items):
            metadata["continue"] = str(end)
        return {"kind": "List", "metadata": metadata, "items": items[start:end]}

    async def _watch(self, request: web.Request, path: str, version: int) -> web.StreamResponse:
        self.calls[f"watch {path}"] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        generation = self._generation
        if version < self._oldest:
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}}
            await response.write(json.dumps(gone).encode() + b"\n")
            return response
        while self._generation == generation:
            for at, event in self._events(path, version):
                await response.write(json.dumps(event).encode() + b"\n")
                version = at
            async with self._changed:
                while self._generation == generation and not self._events(path, version):
                    await self._changed.wait()
        return response

    def _events(self, path: str, after: int) -> list[tuple[int, Json]]:
        return [(at, event) for at, where, event in self._history if where == path and at > after]
