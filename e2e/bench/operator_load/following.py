"""Follows the objects of a kind by list and watch, for as long as it takes and whatever ends a watch."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Self

from e2e.sandbox.controllers.client import ApiClient, ApiError, Obj, Resource

__all__ = ["Following", "LateError", "until"]

POLL = 0.1
GONE = 410
SHOWN = 3
"""Objects that an error names."""


class LateError(Exception):
    """Something that was waited for has not come in time."""


async def until(what: str, holds: Callable[[], bool], seconds: float, rest: Callable[[], str] = lambda: "") -> None:
    """Wait; raises LateError, which says what ``rest`` makes of the state at the end."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise LateError(f"{what}: not within {seconds:g} s; {rest()}")
        await asyncio.sleep(POLL)


class Following:
    """The newest state of each object of a kind in one namespace."""

    def __init__(
        self, client: ApiClient, resource: Resource, namespace: str, note: Callable[[Obj], None] = lambda _: None
    ) -> None:
        """``note`` is called with each state as it comes."""
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._note = note
        self.objects: dict[str, Obj] = {}
        self.changed_at = time.monotonic()
        """Monotonic seconds."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Follow while the block runs, from the state at its beginning; an error in the following ends the block."""
        version = await self._list()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._follow(version))
            yield self
            task.cancel()

    async def settled(self, what: str, names: Collection[str], holds: Callable[[Obj], bool], seconds: float) -> None:
        """Wait until it holds for all of these; raises LateError with the first that lack it."""

        def missing() -> list[str]:
            return [name for name in names if name not in self.objects or not holds(self.objects[name])]

        def rest() -> str:
            late = missing()
            statuses = {name: (self.objects.get(name) or {}).get("status") for name in late[:SHOWN]}
            return f"{len(late)} of {len(names)} are late, such as {statuses}"

        await until(what, lambda: not missing(), seconds, rest)

    async def quiet(self, seconds: float, patience: float) -> None:
        """Wait until nothing has changed for so many seconds."""
        what = f"{seconds:g} s without a change of {self._resource.plural}"
        await until(what, lambda: time.monotonic() - self.changed_at > seconds, patience)

    async def _follow(self, version: str) -> None:
        while True:
            try:
                version = await self._watch(version)
            except ApiError as error:
                if error.code != GONE:
                    raise
                version = await self._list()

    async def _list(self) -> str:
        listed = await self._client.list_all(self._resource, namespace=self._namespace)
        for obj in listed["items"]:
            self._take(obj)
        return str(listed["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        async for event in self._client.watch(self._resource, version, namespace=self._namespace):
            obj = event["object"]
            version = str(obj["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self.objects.pop(obj["metadata"]["name"], None)
                self.changed_at = time.monotonic()
            elif event["type"] != "BOOKMARK":
                self._take(obj)
        return version

    def _take(self, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        known = self.objects.get(name)
        if known is not None and known["metadata"]["resourceVersion"] == obj["metadata"]["resourceVersion"]:
            return
        self.objects[name] = obj
        self.changed_at = time.monotonic()
        self._note(obj)
