"""Faults at calls of the operator's: one at one of them, or some at many."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import orjson
from slipway.kube.transport import Answer, Call, Transport

__all__ = ["Fault", "Injector", "Plan", "Storm", "Strike"]

RETRY_AFTER = "2"


class Fault(StrEnum):
    """What happens to a call."""

    KILL = "process killed after the n-th write"
    CONFLICT = "409 at the n-th write"
    THROTTLED = "429 with Retry-After at the n-th call"
    FAILED = "500 at the n-th call"
    SILENT = "no answer until the time-out at the n-th call"
    REFUSED = "connection dropped before the n-th call arrives"
    LOST = "n-th call done by the server, its answer lost"

    @property
    def counts_writes(self) -> bool:
        """Whether only calls that write are counted."""
        return self in (Fault.KILL, Fault.CONFLICT)

    @property
    def short(self) -> str:
        """A word or two for it."""
        return SHORT[self]


SHORT = {
    Fault.KILL: "killed",
    Fault.CONFLICT: "409",
    Fault.THROTTLED: "429",
    Fault.FAILED: "500",
    Fault.SILENT: "no answer",
    Fault.REFUSED: "not sent",
    Fault.LOST: "answer lost",
}


class Plan(Protocol):
    """Which calls are struck."""

    def fault(self, call: Call, calls: int, writes: int) -> Fault | None:
        """What happens to a call, given its number among the calls of a process, and among its writes."""


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault and the call that it hits, counted from 1; a process is killed before its first write by 0."""

    kind: Fault
    number: int

    def fault(self, call: Call, calls: int, writes: int) -> Fault | None:
        """The fault, when it is this call's turn."""
        if self.kind.counts_writes:
            return self.kind if call.method != "GET" and writes == self.number else None
        return self.kind if calls == self.number else None


@dataclass
class Storm:
    """Faults of all kinds at random calls, of every process one after the other, until it is over."""

    seed: int
    share: float
    """Of all calls, that are struck."""
    over: bool = False
    hits: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
        self._random = random.Random(self.seed)  # noqa: S311  no secret

    def fault(self, call: Call, calls: int, writes: int) -> Fault | None:
        """A fault, or none."""
        if self.over or self._random.random() >= self.share:
            return None
        found = self._random.choice(list(Fault))
        if found.counts_writes and call.method == "GET":
            return None
        self.hits += 1
        return found


class Injector:
    """A transport that carries every call as it is, but those that are struck."""

    def __init__(self, inner: Transport, plan: Plan | None, on_death: Callable[[], None]) -> None:
        """``on_death`` ends the process; after that nothing is carried any more."""
        self._inner = inner
        self._plan = plan
        self._on_death = on_death
        self._armed = False
        self.calls = 0
        self.writes = 0
        self.hit: Call | None = None
        """The call that was struck last."""
        self.dead = False

    def arm(self) -> None:
        """Count from now on; a process that is to be killed before its first write dies."""
        self._armed = True
        if self._plan == Strike(Fault.KILL, 0):
            self.die()

    def die(self) -> None:
        """Kill the process."""
        self.dead = True
        self._on_death()

    async def send(self, call: Call) -> Answer:
        """Carry a call, unless it is the one."""
        if self.dead:
            await asyncio.Event().wait()
        if not self._armed:
            return await self._inner.send(call)
        self.calls += 1
        self.writes += call.method != "GET"
        fault = self._plan.fault(call, self.calls, self.writes) if self._plan else None
        if fault is None:
            return await self._inner.send(call)
        self.hit = call
        return await self._hit(fault, call)

    async def close(self) -> None:
        """Give connections back."""
        await self._inner.close()

    async def _hit(self, fault: Fault, call: Call) -> Answer:
        match fault:
            case Fault.KILL:
                await self._inner.send(call)
                self.die()
                return await asyncio.Future()
            case Fault.CONFLICT:
                return _failure(409, "Conflict", "the object has been modified; please apply your changes")
            case Fault.THROTTLED:
                return _failure(429, "TooManyRequests", "too many requests", {"Retry-After": RETRY_AFTER})
            case Fault.FAILED:
                return _failure(500, "InternalError", "etcdserver: leader changed")
            case Fault.SILENT:
                await asyncio.sleep(call.timeout)
                raise TimeoutError("no answer")
            case Fault.REFUSED:
                raise ConnectionResetError("connection reset before the request was sent")
            case Fault.LOST:
                await self._inner.send(call)
                raise ConnectionResetError("connection reset before the answer came")


def _failure(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Answer(code, headers or {}, orjson.dumps(status))
