"""Kubernetes Events, counted instead of repeated, written in the background."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict

from .client import CONNECTION_ERRORS, EVENTS, ApiClient, ApiError, Obj
from .times import now, to_text

log = logging.getLogger(__name__)

REMEMBERED_EVENTS = 4096
WAITING_EVENTS = 1000


class EventRecorder:
    """Writes events about objects for one component; losing one under load is better than holding up the work."""

    def __init__(self, client: ApiClient, component: str, host: str = "") -> None:
        self._client = client
        self._component = component
        self._host = host
        self._queue: asyncio.Queue[tuple[Obj, str, str, str, str]] = asyncio.Queue(WAITING_EVENTS)
        self._known: OrderedDict[str, Obj] = OrderedDict()

    def normal(self, about: Obj, reason: str, message: str, field: str = "") -> None:
        """Record that something happened as it should; `field` is a path within the object."""
        self._put(about, "Normal", reason, message, field)

    def warning(self, about: Obj, reason: str, message: str, field: str = "") -> None:
        """Record that something went wrong."""
        self._put(about, "Warning", reason, message, field)

    def _put(self, about: Obj, kind: str, reason: str, message: str, field: str) -> None:
        try:
            self._queue.put_nowait((about, kind, reason, message, field))
        except asyncio.QueueFull:
            log.info("event %s dropped: too many are waiting", reason)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            about, kind, reason, message, field = await self._queue.get()
            try:
                await self._write(about, kind, reason, message, field)
            except (ApiError, *CONNECTION_ERRORS) as error:
                # A namespace that is going away refuses new events; nothing is lost that anybody could read.
                log.debug("event %s not written: %s", reason, error)

    async def _write(self, about: Obj, kind: str, reason: str, message: str, field: str) -> None:
        meta = about["metadata"]
        identity = "|".join((meta["uid"], kind, reason, message, field))
        known = self._known.get(identity)
        moment = to_text(now())
        if known is not None:
            try:
                patch = {"count": known["count"] + 1, "lastTimestamp": moment}
                self._known[identity] = await self._client.merge(EVENTS, known, patch)
                return
            except ApiError as error:
                if not error.not_found:
                    raise
        name = f"{meta['name']}.{hashlib.sha256((identity + moment).encode()).hexdigest()[:16]}"
        involved = {
            "apiVersion": about.get("apiVersion"),
            "kind": about.get("kind"),
            "name": meta["name"],
            "namespace": meta.get("namespace"),
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion"),
            "fieldPath": field or None,
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.get("namespace") or "default"},
            "involvedObject": {name: value for name, value in involved.items() if value},
            "type": kind,
            "reason": reason,
            "message": message[:1024],
            "count": 1,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "source": {"component": self._component, **({"host": self._host} if self._host else {})},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
        self._known[identity] = await self._client.create(EVENTS, event)
        while len(self._known) > REMEMBERED_EVENTS:
            self._known.popitem(last=False)
