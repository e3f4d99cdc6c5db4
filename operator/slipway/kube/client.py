"""A small asynchronous client of the API server: retries, time-outs, a limit on concurrency, server-side apply."""

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp

from slipway.kube.failures import ApiError, GoneError, UnavailableError, failure_of
from slipway.kube.kinds import LEASE, Kind
from slipway.kube.transport import Answer, ApiTransport, Call, Transport, load_configuration

__all__ = ["FIELD_MANAGER", "PAGE", "Client", "Listing", "RetryPolicy"]

FIELD_MANAGER = "slipway"
PAGE = 200
"""Objects in one page of a list: while one is made or read, whoever makes or reads it does nothing else."""
_DRY_RUN = (("dryRun", "All"),)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call is repeated that found the API server overloaded, failing or gone."""

    attempts: int = 5
    """Tries in all."""
    first: float = 0.2
    """Seconds before the second try; doubled each time."""
    longest: float = 10.0
    """Upper bound of a wait in seconds, also of what Retry-After may ask."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A complete list of objects at one resource version."""

    items: tuple[Mapping[str, Any], ...]
    resource_version: str


class Client:
    """Calls the API server; objects are plain dicts, so fields that nobody here knows survive."""

    def __init__(
        self,
        transport: Transport,
        *,
        field_manager: str = FIELD_MANAGER,
        timeout: float = 30.0,
        concurrency: int = 16,
        retry: RetryPolicy | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        on_call: Callable[[str, str, int, float], None] | None = None,
    ) -> None:
        """Make a client.

        Writes go under the name ``field_manager``. ``timeout`` is in seconds and for one try; ``draw`` gives numbers
        in [0, 1) for jitter; ``on_call`` is told method, plural of the kind, HTTP status (0: no answer) and seconds of
        every try.
        """
        self._transport = transport
        self._manager = field_manager
        self._timeout = timeout
        self._slots = asyncio.Semaphore(concurrency)
        self._retry = retry or RetryPolicy()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._sleep = sleep
        self._draw = draw
        self._on_call = on_call
        self._not_before = 0.0
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before every try of a write, but those of a Lease; where it says no, the write fails."""

    @classmethod
    async def from_environment(cls, **options: Any) -> Self:
        """A client of the cluster that ``KUBECONFIG`` or the pod's service account names; options as above."""
        return cls(ApiTransport(await load_configuration()), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def get(
        self, kind: Kind, namespace: str, name: str, *, timeout: float | None = None, attempts: int | None = None
    ) -> Object:
        """Read one object."""
        return await self._call(kind, "GET", kind.path(namespace, name), timeout=timeout, attempts=attempts)

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        page: int = PAGE,
        reduce: Callable[[Object], Mapping[str, Any]] = lambda obj: obj,
    ) -> Listing:
        """Read all objects of a kind, in pages; a list that expires half-way is read again in one piece.

        What ``reduce`` leaves of each object is kept, as soon as its page is read: of a long list no more than one page
        is ever held whole.
        """
        try:
            return await self._pages(kind, namespace, label_selector, page, reduce)
        except GoneError:
            return await self._pages(kind, namespace, label_selector, 0, reduce)

    async def create(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        timeout: float | None = None,
        attempts: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Create an object; raises :class:`~slipway.kube.failures.ConflictError` when the name is taken.

        A dry run changes nothing and gives what would have been stored.
        """
        path = kind.path(obj["metadata"]["namespace"])
        query = (("fieldManager", self._manager), *_DRY_RUN[:dry_run])
        return await self._call(kind, "POST", path, query=query, body=obj, timeout=timeout, attempts=attempts)

    async def replace(
        self,
        kind: Kind,
        obj: Mapping[str, Any],
        *,
        timeout: float | None = None,
        attempts: int | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Write a whole object; with metadata.resourceVersion it must not have changed since. Dry run as above."""
        path = kind.path(obj["metadata"]["namespace"], obj["metadata"]["name"])
        query = (("fieldManager", self._manager), *_DRY_RUN[:dry_run])
        return await self._call(kind, "PUT", path, query=query, body=obj, timeout=timeout, attempts=attempts)

    async def apply(self, kind: Kind, obj: Mapping[str, Any]) -> Object:
        """Apply the fields given, on the server, taking them over from other managers."""
        path = kind.path(obj["metadata"]["namespace"], obj["metadata"]["name"])
        query = (("fieldManager", self._manager), ("force", "true"))
        return await self._call(kind, "PATCH", path, query=query, body=obj, content="application/apply-patch+yaml")

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], *, subresource: str | None = None
    ) -> Object:
        """Merge-patch an object or a subresource such as ``status``; metadata.resourceVersion in it is a condition."""
        path = kind.path(namespace, name, subresource)
        query = (("fieldManager", self._manager),)
        return await self._call(kind, "PATCH", path, query=query, body=body, content="application/merge-patch+json")

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> Object:
        """Delete exactly the object of that uid, in the background; raises ConflictError when it is another one."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        return await self._call(kind, "DELETE", kind.path(namespace, name), body=body)

    async def _pages(
        self,
        kind: Kind,
        namespace: str | None,
        label_selector: str,
        page: int,
        reduce: Callable[[Object], Mapping[str, Any]],
    ) -> Listing:
        items: list[Mapping[str, Any]] = []
        token = ""
        while True:
            query = [("labelSelector", label_selector)] if label_selector else []
            query += [("limit", str(page))] if page else []
            query += [("continue", token)] if token else []
            document = await self._call(kind, "GET", kind.path(namespace), query=query)
            # Items of a list carry neither apiVersion nor kind for built-in kinds.
            items += [
                reduce({"apiVersion": kind.api_version, "kind": kind.name} | item)
                for item in document.get("items") or ()
            ]
            metadata = document.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                return Listing(tuple(items), str(metadata.get("resourceVersion", "")))

    async def _call(
        self,
        kind: Kind,
        method: str,
        path: str,
        *,
        query: Any = (),
        body: Any = None,
        content: str = "application/json",
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> Object:
        call = Call(method, path, tuple(query), body, content, timeout or self._timeout)
        last = attempts or self._retry.attempts
        for attempt in range(1, last + 1):
            if kind != LEASE:
                # A leader that waits before it says that it lives is taken for dead.
                await self._hold_back()
                self._check_fence(method, path)
            answer, error = await self._try(kind, call)
            if answer is not None and answer.status < 300:
                document: Object = json.loads(answer.body)
                return document
            error = error or failure_of(answer.status if answer else 0, answer.body if answer else b"")
            wait = self._wait(attempt, answer)
            if not isinstance(error, UnavailableError) or attempt == last:
                raise error
            await self._sleep(wait)
        raise AssertionError("a call has at least one attempt")

    def _check_fence(self, method: str, path: str) -> None:
        if method != "GET" and not self.may_write():
            raise UnavailableError(f"{method} {path}: this process may have lost its lease", reason="Fenced")

    async def _try(self, kind: Kind, call: Call) -> tuple[Answer | None, ApiError | None]:
        """One try: an answer, or the failure to get one."""
        # A lease must not wait for calls that hang either.
        async with contextlib.nullcontext() if kind == LEASE else self._slots:
            started = self._clock()
            answer: Answer | None = None
            try:
                answer = await self._transport.send(call)
            except (OSError, TimeoutError, aiohttp.ClientError) as cause:
                text = str(cause) or type(cause).__name__
                return None, UnavailableError(f"{call.method} {call.path}: {text}", reason=type(cause).__name__)
            finally:
                if self._on_call is not None:
                    status = answer.status if answer else 0
                    self._on_call(call.method, kind.plural, status, self._clock() - started)
            return answer, None

    def _wait(self, attempt: int, answer: Answer | None) -> float:
        """Seconds before the next try; a Retry-After holds back every other call as well."""
        policy = self._retry
        wait = min(policy.first * 2.0 ** (attempt - 1), policy.longest) * (0.5 + 0.5 * self._draw())
        asked = _retry_after(answer)
        if asked:
            wait = max(wait, min(asked, policy.longest))
            self._not_before = max(self._not_before, self._clock() + min(asked, policy.longest))
        return wait

    async def _hold_back(self) -> None:
        rest = self._not_before - self._clock()
        if rest > 0:
            await self._sleep(rest)


def _retry_after(answer: Answer | None) -> float:
    """Seconds that the API server asks to wait; 0 when it does not (or gives a date, which it never does)."""
    text: str = answer.headers.get("Retry-After", "") if answer else ""
    return float(text) if text.isdigit() else 0.0
