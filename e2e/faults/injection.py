"""One fault at one call of the operator's."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import orjson
from slipway.kube.transport import Answer, Call, Transport

__all__ = ["Fault", "Injector", "Strike"]

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


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault and the call that it hits, counted from 1; a process is killed before its first write by 0."""

    fault: Fault
    number: int


class Injector:
    """A transport that carries every call but one as it is."""

    def __init__(self, inner: Transport, strike: Strike | None, on_death: Callable[[], None]) -> None:
        """``on_death`` ends the process; after that nothing is carried any more."""
        self._inner = inner
        self._strike = strike
        self._on_death = on_death
        self._armed = False
        self.calls = 0
        self.writes = 0
        self.hit: Call | None = None
        """The call that was struck."""
        self.dead = False

    def arm(self) -> None:
        """Count from now on; a process that is to be killed before its first write dies."""
        self._armed = True
        if self._strike == Strike(Fault.KILL, 0):
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
        if self._strike is None or not self._meets(self._strike, call):
            return await self._inner.send(call)
        self.hit = call
        return await self._hit(self._strike.fault, call)

    async def close(self) -> None:
        """Give connections back."""
        await self._inner.close()

    def _meets(self, strike: Strike, call: Call) -> bool:
        if strike.fault.counts_writes:
            return call.method != "GET" and self.writes == strike.number
        return self.calls == strike.number

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
