"""Turns what reconciles decide into messages, each told once to each receiver that wants it."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import aiohttp

from slipway.api.status import ModelDeploymentStatus
from slipway.notifications.delivery import Delivery
from slipway.notifications.messages import Subject, message_of
from slipway.notifications.news import News, NewsKind, news_between, recent_news
from slipway.notifications.receivers import Receiver

__all__ = ["ANNOTATION", "REPEATED", "Notifier"]

ANNOTATION = "slipway.dev/notifications"
"""On a ModelDeployment: ``off``, or the kinds of news that are told of it, separated by commas."""
REPEATED = 600.0
"""Seconds: what happened so short before a process saw the object first may not have been told, and is told again."""
REMEMBERED = 8192
"""Identities of news and of objects that are remembered."""


class Notifier:
    """Takes decisions as they are written; only the leader makes any, so only the leader tells."""

    def __init__(
        self,
        receivers: Sequence[Receiver],
        *,
        count: Callable[[str, str], None],
        cluster: str = "",
        clock: Callable[[], float] = time.monotonic,
        deliveries: Sequence[Delivery] | None = None,
    ) -> None:
        """``count`` is told receiver and fate of each message; ``cluster`` names the cluster in what is sent."""
        self._cluster = cluster
        self._deliveries = (
            [Delivery(receiver, count=count, clock=clock) for receiver in receivers]
            if deliveries is None
            else list(deliveries)
        )
        self._told: OrderedDict[str, None] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()

    def decided(self, raw: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> None:
        """Queue the news of one decision: ``raw`` is the object before it, ``status`` what it has led to."""
        metadata = raw["metadata"]
        uid = str(metadata.get("uid", ""))
        try:
            before = ModelDeploymentStatus.from_wire(raw.get("status"))
        except ValueError:
            return
        fresh = _new(self._seen, uid)
        earlier = recent_news(before, now - REPEATED) if fresh else ()
        kinds = _kinds((metadata.get("annotations") or {}).get(ANNOTATION, ""))
        subject = Subject(str(metadata.get("namespace", "")), str(metadata["name"]), uid, self._cluster)
        self._tell(subject, kinds, (*earlier, *news_between(before, status)), now)

    def measured(self) -> None:
        """Nothing: metrics alone are no news."""

    def _tell(self, subject: Subject, kinds: frozenset[NewsKind], told: Iterable[News], now: float) -> None:
        for news in told:
            if news.kind not in kinds or not _new(self._told, f"{subject.uid}/{news.transition}"):
                continue
            for delivery in self._deliveries:
                if delivery.receiver.wants(news.kind, subject.namespace):
                    delivery.put(message_of(news, subject, delivery.receiver.type, now))

    async def run(self) -> None:
        """Send what is queued, for ever."""
        # Proxies come from the environment, as for everything else that leaves a cluster.
        async with aiohttp.ClientSession(trust_env=True) as session, asyncio.TaskGroup() as group:
            for delivery in self._deliveries:
                group.create_task(delivery.run(session), name=f"notifications to {delivery.receiver.name}")

    async def drain(self, timeout: float) -> None:
        """Wait until everything queued is sent, at most ``timeout`` seconds; :meth:`run` has to be running.

        What is left then is told by the next leader, which takes up what has just happened.
        """
        waits = [asyncio.ensure_future(delivery.drained()) for delivery in self._deliveries]
        if not waits:
            return
        _, late = await asyncio.wait(waits, timeout=timeout)
        for wait in late:
            wait.cancel()


def _new(known: OrderedDict[str, None], identity: str) -> bool:
    """Whether an identity has not been there before; it has been from now on."""
    if identity in known:
        known.move_to_end(identity)
        return False
    known[identity] = None
    while len(known) > REMEMBERED:
        known.popitem(last=False)
    return True


def _kinds(annotation: str) -> frozenset[NewsKind]:
    """What an object's annotation lets through; words that mean nothing take nothing away."""
    if annotation.strip().lower() == "off":
        return frozenset()
    chosen = {word.strip() for word in annotation.split(",")} & set(NewsKind)
    return frozenset(NewsKind(word) for word in chosen) or frozenset(NewsKind)
