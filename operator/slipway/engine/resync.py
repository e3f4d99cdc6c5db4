"""Lists of everything, at the start and every few minutes: watches can lose deletions, lists cannot."""

import asyncio
import functools
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence

from slipway.engine.telemetry import Telemetry
from slipway.kube.cache import Cache, trimmed
from slipway.kube.client import Client
from slipway.kube.failures import ApiError, ForbiddenError, NotFoundError
from slipway.kube.kinds import MODEL_DEPLOYMENT, OPTIONAL, SHARED, WATCHED, Kind
from slipway.kube.metadata import OWN_SELECTOR, Key, is_older

__all__ = ["Resync"]

log = logging.getLogger(__name__)


class Resync:
    """Keeps the cache honest."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        telemetry: Telemetry,
        *,
        namespaces: Sequence[str] = (),
        kinds: Sequence[Kind] = WATCHED,
        period: float = 300.0,
        retry: float = 5.0,
        often: float = math.inf,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        on_changed: Callable[[Key], None],
    ) -> None:
        """List ``kinds`` in ``namespaces`` (none: the whole cluster) every ``period`` seconds, with jitter.

        ``on_changed`` is told every ModelDeployment of which something differed. ``retry`` is the wait in seconds
        before a list that failed is tried again. ModelDeployments alone are listed every ``often`` seconds as well:
        few lists instead of a read of each.
        """
        self._client = client
        self._cache = cache
        self._telemetry = telemetry
        self._namespaces = tuple(namespaces)
        self._kinds = tuple(kinds)
        self._period = period
        self._retry = retry
        self._often = often
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self._on_changed = on_changed
        self._succeeded_at: float | None = None
        self.models_listed_at = -math.inf
        """By the clock: the cache's ModelDeployments are as of then or newer."""
        self.primed = asyncio.Event()
        """Set once everything has been listed for the first time."""

    @property
    def period(self) -> float:
        """Seconds between two lists."""
        return self._period

    @property
    def age(self) -> float | None:
        """Seconds since the last complete list; None before the first."""
        return None if self._succeeded_at is None else self._clock() - self._succeeded_at

    async def run(self) -> None:
        """List for ever."""
        while True:
            wait = self._period * (0.9 + 0.2 * self._draw())
            try:
                await self.once()
            except ApiError as error:
                log.warning("resync failed: %s", error)
                wait = min(self._retry, wait)
            await self._wait(wait)

    async def _wait(self, seconds: float) -> None:
        """Let time pass until the next list of everything."""
        for _ in range(int(seconds // self._often)):
            await self._sleep(self._often)
            try:
                await self.models()
            except ApiError as error:
                log.warning("listing ModelDeployments failed: %s", error)
        await self._sleep(seconds % self._often)

    async def models(self) -> None:
        """List the ModelDeployments once and take the list over; raises ApiError when it fails."""
        newest = self._cache.newest(MODEL_DEPLOYMENT)
        changed = await self._list(MODEL_DEPLOYMENT)
        if is_older(self._cache.newest(MODEL_DEPLOYMENT), newest):
            # etcd was restored from a backup, which concerns every kind.
            await self.once()
        for key in changed:
            self._on_changed(key)

    async def once(self) -> None:
        """List every kind once and take the lists over; raises ApiError when one of them fails."""
        changed: set[Key] = set()
        for kind in self._kinds:
            changed |= await self._list(kind)
            self._telemetry.cached.labels(kind.plural).set(self._cache.count(kind))
        first = not self.primed.is_set()
        self._succeeded_at = self._clock()
        self.primed.set()
        for key in self._cache.keys(MODEL_DEPLOYMENT) if first else changed:
            self._on_changed(key)

    async def _list(self, kind: Kind) -> set[Key]:
        changed: set[Key] = set()
        begun = self._clock()
        scopes: Sequence[str | None] = self._namespaces or (None,)
        selector = "" if kind in SHARED or kind == MODEL_DEPLOYMENT else OWN_SELECTOR
        try:
            for scope in scopes:
                changed |= await self._take(kind, scope, selector)
        except NotFoundError:
            if kind not in OPTIONAL:
                raise
            return self._cache.unserved(kind)
        except ForbiddenError as error:
            raise ForbiddenError(
                f"listing {kind.plural} is not allowed: {error}", status=error.status, reason=error.reason
            ) from error
        if kind == MODEL_DEPLOYMENT:
            self.models_listed_at = begun
        return changed

    async def _take(self, kind: Kind, scope: str | None, selector: str) -> set[Key]:
        newest = self._cache.newest(kind)
        reduce = functools.partial(self._cache.reduced, kind)
        listing = await self._client.list(kind, scope, label_selector=selector, reduce=reduce)
        if is_older(listing.resource_version, newest):
            # A list is never older than what was seen before it was asked for, unless etcd was restored from a backup.
            log.error(
                "%s: resource versions went back from %s to %s: everything known of them is given up",
                kind.plural,
                newest,
                listing.resource_version,
            )
            # Not what was known in that past, even under the same version.
            anew = functools.partial(trimmed, kind)
            listing = await self._client.list(kind, scope, label_selector=selector, reduce=anew)
            return self._cache.start_over(kind, listing)
        return self._cache.replace(kind, listing, covers=lambda key: scope is None or key.namespace == scope)
