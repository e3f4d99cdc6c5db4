"""Kubernetes Events on ModelDeployments: few, counted instead of repeated, and never a reason for anything to fail."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.api.events import EventRecord
from slipway.api.timestamps import whole_second
from slipway.kube.client import Client
from slipway.kube.failures import ApiError, ConflictError, NotFoundError
from slipway.kube.kinds import EVENT
from slipway.kube.metadata import key_of, uid_of

__all__ = ["EventRecorder", "TokenBucket"]

log = logging.getLogger(__name__)

MESSAGE_LIMIT = 1024
REMEMBERED = 4096


@dataclass(slots=True)
class TokenBucket:
    """Lets ``burst`` events through at once, then one per ``period`` seconds."""

    burst: float = 25.0
    period: float = 60.0
    tokens: float = 25.0
    at: float = 0.0

    def take(self, now: float) -> bool:
        """Whether one more may pass at ``now`` (seconds)."""
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self.at) / self.period)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(frozen=True, slots=True)
class _Occurrence:
    involved: Mapping[str, Any]
    record: EventRecord
    at: float

    @property
    def name(self) -> str:
        """The same for the same news of the same object, so that a repeated one finds its Event."""
        text = "\0".join((uid_of(self.involved), self.record.type, self.record.reason, self.record.message))
        return f"{key_of(self.involved).name[:230]}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class EventRecorder:
    """Takes events at once and posts them in the background."""

    def __init__(
        self,
        client: Client,
        *,
        wall: Callable[[], float],
        component: str = "slipway",
        instance: str = "",
        capacity: int = 1000,
        on_drop: Callable[[], None] | None = None,
    ) -> None:
        """Post as ``component``; ``wall`` gives seconds since the epoch; ``on_drop`` is told of each event dropped."""
        self._client = client
        self._wall = wall
        self._source = {"component": component}
        self._instance = instance or component
        self._waiting: asyncio.Queue[_Occurrence] = asyncio.Queue(capacity)
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._on_drop = on_drop

    def record(self, involved: Mapping[str, Any], record: EventRecord) -> None:
        """Take an event on an object (as read from the API server); drops it when there are too many."""
        bucket = self._buckets.setdefault(uid_of(involved), TokenBucket(at=self._wall()))
        self._buckets.move_to_end(uid_of(involved))
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        now = self._wall()
        if not bucket.take(now) or self._waiting.full():
            log.debug("event dropped: %s", record.reason)
            if self._on_drop is not None:
                self._on_drop()
            return
        self._waiting.put_nowait(_Occurrence(involved, record, now))

    async def run(self) -> None:
        """Post what is recorded, for ever."""
        while True:
            occurrence = await self._waiting.get()
            try:
                await self._post(occurrence)
            except ApiError as error:
                log.debug("event %s was not posted: %s", occurrence.record.reason, error)
            finally:
                self._waiting.task_done()

    async def drain(self, timeout: float) -> None:
        """Wait until everything recorded is posted, at most ``timeout`` seconds; :meth:`run` has to be running."""
        try:
            async with asyncio.timeout(timeout):
                await self._waiting.join()
        except TimeoutError:
            log.debug("%d events were not posted", self._waiting.qsize())

    async def _post(self, occurrence: _Occurrence) -> None:
        name = occurrence.name
        count = self._counts.get(name, 0) + 1
        if count > 1 and await self._count_up(occurrence, count):
            return
        try:
            await self._client.create(EVENT, self._event(occurrence))
            self._remember(name, 1)
        except ConflictError:
            # Made by an earlier life of the operator.
            namespace = key_of(occurrence.involved).namespace
            known = await self._client.get(EVENT, namespace, name)
            await self._count_up(occurrence, int(known.get("count") or 1) + 1)

    async def _count_up(self, occurrence: _Occurrence, count: int) -> bool:
        """Raise the count of an Event; False when it has expired."""
        namespace = key_of(occurrence.involved).namespace
        body = {"count": count, "lastTimestamp": whole_second(occurrence.at)}
        try:
            await self._client.patch(EVENT, namespace, occurrence.name, body)
        except NotFoundError:
            return False
        self._remember(occurrence.name, count)
        return True

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    def _event(self, occurrence: _Occurrence) -> dict[str, Any]:
        involved, at = occurrence.involved, whole_second(occurrence.at)
        key = key_of(involved)
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"namespace": key.namespace, "name": occurrence.name},
            "involvedObject": {
                "apiVersion": involved["apiVersion"],
                "kind": involved["kind"],
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid_of(involved),
                "resourceVersion": involved["metadata"].get("resourceVersion", ""),
            },
            "reason": occurrence.record.reason,
            "message": occurrence.record.message[:MESSAGE_LIMIT],
            "type": occurrence.record.type,
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": self._source,
            "reportingComponent": self._source["component"],
            "reportingInstance": self._instance,
        }
