"""Leader election by a ``coordination.k8s.io`` Lease, by the algorithm of client-go.

Other holders' clocks are never trusted: a lease counts as expired when it was *seen* unchanged for its duration on
our own clock. Two leaders may still overlap for moments; the resourceVersion in every status write is the fence.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.api.timestamps import format_time
from slipway.kube.client import Client
from slipway.kube.failures import ApiError, ConflictError, NotFoundError
from slipway.kube.kinds import LEASE
from slipway.kube.metadata import Key

__all__ = ["Elector", "LeaseLostError", "LeaseTimes"]

log = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """The lease could not be renewed in time: somebody else may lead by now, so this process must end."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds; each must be well below the one before."""

    duration: float = 15.0
    """How long others wait for a sign of life."""
    renew_deadline: float = 10.0
    """How long the holder tries to renew before it gives up."""
    retry: float = 2.0
    """Between two tries."""


class Elector:
    """Competes for one Lease."""

    def __init__(
        self,
        client: Client,
        lease: Key,
        identity: str,
        *,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Compete as ``identity``; ``clock`` is monotonic, ``wall`` gives seconds since the epoch for the record."""
        self._client = client
        self._lease = lease
        self._identity = identity
        self._times = times or LeaseTimes()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._wall = wall
        self._sleep = sleep
        self._draw = draw
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._held: dict[str, Any] | None = None
        self._renewed_at = 0.0

    @property
    def leading(self) -> bool:
        """Whether the lease is held as far as this process knows."""
        return self._held is not None

    @property
    def fresh(self) -> bool:
        """Whether nobody else can lead yet; false in a process that was stopped for longer and has just woken up."""
        return self.leading and self._clock() - self._renewed_at < self._times.renew_deadline

    async def acquire(self) -> None:
        """Return once the lease is held."""
        while not await self._try():
            await self._sleep(self._times.retry * (1.0 + 1.2 * self._draw()))
        log.info("leading as %s", self._identity)

    async def hold(self) -> None:
        """Renew for ever; raises :class:`LeaseLostError` once that has failed for too long."""
        while True:
            await self._sleep(self._times.retry)
            if await self._try_until(self._renewed_at + self._times.renew_deadline):
                continue
            if self._held is None or self._clock() - self._renewed_at >= self._times.renew_deadline:
                self._held = None
                raise LeaseLostError(f"lease {self._lease} is lost")

    async def release(self) -> None:
        """Give the lease up so that another can have it at once; never raises."""
        if self._held is None:
            return
        spec = {**self._held["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._client.replace(
                LEASE, {**self._held, "spec": spec}, timeout=self._times.renew_deadline / 2, attempts=1
            )
        except ApiError as error:
            log.warning("lease %s was not released: %s", self._lease, error)
        self._held = None

    async def _try_until(self, deadline: float) -> bool:
        """Renew once; False when that has not come to an end by ``deadline``, however slow the API server is."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock())):
                return await self._try()
        except TimeoutError:
            log.warning("lease %s was not renewed in time", self._lease)
            return False

    async def _try(self) -> bool:
        """Acquire or renew once."""
        timeout = self._times.renew_deadline / 2
        try:
            lease = await self._client.get(LEASE, *self._lease, timeout=timeout, attempts=1)
        except NotFoundError:
            return await self._write(self._client.create, self._fresh())
        except ApiError as error:
            log.warning("lease %s cannot be read: %s", self._lease, error)
            return False
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        self._look(lease)
        if holder and holder != self._identity:
            self._held = None
            if self._clock() < self._seen_at + float(spec.get("leaseDurationSeconds") or self._times.duration):
                return False
        return await self._write(self._client.replace, self._taken(lease, spec, holder))

    async def _write(self, write: Callable[..., Awaitable[dict[str, Any]]], lease: Mapping[str, Any]) -> bool:
        begun = self._clock()
        try:
            self._held = await write(LEASE, lease, timeout=self._times.renew_deadline / 2, attempts=1)
        except ConflictError:
            return False
        except ApiError as error:
            log.warning("lease %s cannot be written: %s", self._lease, error)
            return False
        self._renewed_at = begun
        self._look(self._held)
        return True

    def _look(self, lease: Mapping[str, Any]) -> None:
        """Note when the lease was last seen to change."""
        spec = lease.get("spec") or {}
        seen = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()

    def _fresh(self) -> dict[str, Any]:
        now = format_time(self._wall())
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": {"namespace": self._lease.namespace, "name": self._lease.name},
            "spec": self._spec(acquired=now, now=now, transitions=0),
        }

    def _taken(self, lease: Mapping[str, Any], spec: Mapping[str, Any], holder: str) -> dict[str, Any]:
        now = format_time(self._wall())
        transitions = int(spec.get("leaseTransitions") or 0)
        if holder == self._identity:
            acquired = str(spec.get("acquireTime") or now)
        else:
            acquired, transitions = now, transitions + 1
        return {**lease, "spec": {**spec, **self._spec(acquired=acquired, now=now, transitions=transitions)}}

    def _spec(self, *, acquired: str, now: str, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
