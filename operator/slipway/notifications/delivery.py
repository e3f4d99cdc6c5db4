"""The way to one receiver: a bounded queue, one message at a time, again and again until it is taken or too old."""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

import aiohttp

from slipway.notifications.messages import Message
from slipway.notifications.receivers import Receiver, ReceiverError

__all__ = ["Delivery", "DeliveryLimits", "Fate"]

log = logging.getLogger(__name__)

AGAIN = frozenset({408, 425, 429})
"""Answers below 500 that are worth another try."""
LONGEST_RETRY_AFTER = 300.0


class Fate(StrEnum):
    """What became of a message, or of a try."""

    SENT = "sent"
    RETRIED = "retried"
    OVERFLOW = "overflow"
    """It was the oldest in a full queue."""
    REFUSED = "refused"
    """The receiver will not take it."""
    EXPIRED = "expired"
    """It was not taken for too long."""


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Bounds of one receiver; times in seconds."""

    queue: int = 256
    timeout: float = 10.0
    """For one try."""
    give_up: float = 900.0
    """Age at which a message is not tried again."""
    first_wait: float = 1.0
    longest_wait: float = 60.0

    def wait(self, failures: int, draw: float) -> float:
        """Seconds after the n-th failure in a row, doubled each time and drawn from the upper half."""
        return min(self.first_wait * 2.0 ** min(failures - 1, 30), self.longest_wait) * (0.5 + 0.5 * draw)


class Delivery:
    """Sends messages to one receiver in order."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        count: Callable[[str, str], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        limits: DeliveryLimits | None = None,
    ) -> None:
        """``count`` is told receiver and fate of each message and each try again; ``clock`` is monotonic."""
        self.receiver = receiver
        self._count = count
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._limits = limits or DeliveryLimits()
        self._waiting: deque[tuple[float, Message]] = deque()
        self._some = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def put(self, message: Message) -> None:
        """Queue a message; in a full queue the oldest one gives way."""
        if len(self._waiting) >= self._limits.queue:
            self._waiting.popleft()
            self._end(Fate.OVERFLOW)
        self._waiting.append((self._clock(), message))
        self._idle.clear()
        self._some.set()

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Send what is queued, for ever."""
        while True:
            await self._some.wait()
            while self._waiting:
                queued, message = self._waiting.popleft()
                self._end(await self._deliver(session, message, queued))
            self._some.clear()
            self._idle.set()

    async def drained(self) -> None:
        """Wait until nothing is queued or under way."""
        await self._idle.wait()

    def _end(self, fate: Fate) -> None:
        self._count(self.receiver.name, fate.value)
        if fate in (Fate.OVERFLOW, Fate.EXPIRED):
            log.warning("a notification for %s was dropped: %s", self.receiver.name, fate.value)

    async def _deliver(self, session: aiohttp.ClientSession, message: Message, queued: float) -> Fate:
        failures = 0
        while True:
            fate, retry_after = await self._try(session, message)
            if fate is not Fate.RETRIED:
                return fate
            failures += 1
            wait = max(self._limits.wait(failures, self._draw()), retry_after)
            if self._clock() + wait - queued > self._limits.give_up:
                return Fate.EXPIRED
            self._count(self.receiver.name, Fate.RETRIED.value)
            await self._sleep(wait)

    async def _try(self, session: aiohttp.ClientSession, message: Message) -> tuple[Fate, float]:
        """One try: its fate, and the seconds that the receiver asks to wait. Logs no URL, for it may be a secret."""
        name = self.receiver.name
        try:
            headers = {"Content-Type": message.content_type}
            if token := self.receiver.token():
                headers["Authorization"] = f"Bearer {token}"
            async with session.post(
                self.receiver.address(),
                data=message.body,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self._limits.timeout),
            ) as response:
                return self._judged(response)
        except ReceiverError as error:
            log.warning("%s", error)
            return Fate.RETRIED, 0.0
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("receiver %s was not reached: %s", name, type(error).__name__)
            return Fate.RETRIED, 0.0
        except Exception:
            # The boundary of the background task: whatever one message makes us stumble over, the operator goes on.
            log.exception("a notification for %s could not be sent", name)
            return Fate.REFUSED, 0.0

    def _judged(self, response: aiohttp.ClientResponse) -> tuple[Fate, float]:
        status, name = response.status, self.receiver.name
        if 200 <= status < 300:
            return Fate.SENT, 0.0
        if status >= 500 or status in AGAIN:
            log.warning("receiver %s answered %d", name, status)
            return Fate.RETRIED, _retry_after(response.headers.get("Retry-After", ""))
        log.error("receiver %s refused a notification with status %d", name, status)
        return Fate.REFUSED, 0.0


def _retry_after(text: str) -> float:
    return min(float(text), LONGEST_RETRY_AFTER) if text.isascii() and text.isdigit() else 0.0
