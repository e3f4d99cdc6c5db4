"""A local copy of one kind of object, kept in step with the API server by list and watch."""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from e2e.sandbox.mesh.names import Json, object_key

PAGE_SIZE = 500
WATCH_SECONDS = 240
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0

_log = logging.getLogger(__name__)


class WatchExpiredError(Exception):
    """The server no longer has the history a watch asked for: list again."""


@dataclass(frozen=True)
class ApiAccess:
    """How to reach an API server: address, bearer token and the certificate authority to trust."""

    url: str
    token: str
    ca_file: Path | None

    def session(self) -> aiohttp.ClientSession:
        """A client session that sends the token and trusts the authority."""
        context: ssl.SSLContext | bool = True
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=str(self.ca_file))
        return aiohttp.ClientSession(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=WATCH_SECONDS + 30),
            read_bufsize=2**20,
        )


class Reflector:
    """Keeps all objects at one path, such as ``/api/v1/pods``; `changed` is called after each change."""

    def __init__(self, access: ApiAccess, path: str, changed: Callable[[], None]) -> None:
        self._access = access
        self._path = path
        self._changed = changed
        self._objects: dict[tuple[str, str], Json] = {}
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()

    @property
    def objects(self) -> tuple[Json, ...]:
        """The objects as last seen."""
        return tuple(self._objects.values())

    def start(self) -> None:
        """Begin to list and watch, with new attempts after every failure."""
        self._task = asyncio.create_task(self._run(), name=f"reflect {self._path}")

    async def listed(self) -> None:
        """Wait for the first complete list (a kind that is not installed counts as empty)."""
        await self._listed.wait()

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        async with self._access.session() as session:
            while True:
                try:
                    version = await self._list(session)
                    pause = FIRST_PAUSE
                    while True:
                        version = await self._watch(session, version)
                except WatchExpiredError:
                    continue
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                    _log.debug("%s: %s", self._path, error)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)

    async def _list(self, session: aiohttp.ClientSession) -> str:
        found: dict[tuple[str, str], Json] = {}
        parameters = {"limit": str(PAGE_SIZE)}
        while True:
            async with session.get(self._path, params=parameters) as response:
                if response.status == 404:
                    self._replace({})
                    raise aiohttp.ClientPayloadError(f"{self._path} is not installed")
                if response.status == 410:
                    raise WatchExpiredError
                response.raise_for_status()
                page = await response.json()
            found.update((object_key(item), item) for item in page["items"])
            token = page["metadata"].get("continue")
            if not token:
                break
            parameters["continue"] = token
        self._replace(found)
        version: str = page["metadata"]["resourceVersion"]
        return version

    def _replace(self, found: dict[tuple[str, str], Json]) -> None:
        differs = found != self._objects
        self._objects = found
        self._listed.set()
        if differs:
            self._changed()

    async def _watch(self, session: aiohttp.ClientSession, version: str) -> str:
        parameters = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with session.get(self._path, params=parameters) as response:
            if response.status == 410:
                raise WatchExpiredError
            response.raise_for_status()
            async for event in _events(response):
                item = event["object"]
                if event["type"] == "ERROR":
                    if item.get("code") == 410:
                        raise WatchExpiredError
                    raise aiohttp.ClientPayloadError(f"watch of {self._path}: {item.get('message')}")
                version = item["metadata"]["resourceVersion"]
                self._take(event["type"], item)
        return version

    def _take(self, kind: str, item: Json) -> None:
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self._objects.pop(object_key(item), None)
        else:
            self._objects[object_key(item)] = item
        self._changed()


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """The events of a watch, one JSON object a line; a line may be longer than the reader's buffer."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield json.loads(line)
