"""The newest metrics of all ModelDeployments, read from Prometheus every few seconds in one go."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from slipway.api.samples import MetricsView
from slipway.engine.telemetry import Telemetry

__all__ = ["Snapshot", "SnapshotTicker", "Source"]

log = logging.getLogger(__name__)


class Snapshot(Protocol):
    """Metrics of everything at one moment."""

    @property
    def available(self) -> bool:
        """Whether the source answered."""
        ...

    def view(self, namespace: str, model: str) -> MetricsView:
        """The part that belongs to one ModelDeployment."""
        ...


class Source(Protocol):
    """Where snapshots come from."""

    async def snapshot(self, now: float) -> Snapshot:
        """Read everything once; ``now`` is in seconds since the epoch."""
        ...

    def want(self, namespace: str, model: str, queries: Sequence[str]) -> None:
        """From now on these expressions are asked for a ModelDeployment, and no others."""
        ...


class SnapshotTicker:
    """Keeps the newest snapshot and tells when there is a new one.

    A snapshot that failed says so itself and takes the place of the one before: old numbers are never passed off as
    present ones.
    """

    def __init__(
        self,
        source: Source | None,
        *,
        period: float,
        wall: Callable[[], float],
        clock: Callable[[], float],
        on_snapshot: Callable[[], None],
        telemetry: Telemetry,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Read ``source`` every ``period`` seconds; without one, metrics are never available."""
        self._source = source
        self._period = period
        self._wall = wall
        self._clock = clock
        self._on_snapshot = on_snapshot
        self._telemetry = telemetry
        self._sleep = sleep
        self._newest: Snapshot | None = None
        self._succeeded_at = clock()
        self._failure = "no snapshot yet" if source else "no Prometheus is configured (--prometheus-url)"

    def view(self, namespace: str, name: str) -> MetricsView:
        """The newest metrics of one ModelDeployment."""
        if self._newest is None:
            return MetricsView(at=self._wall(), available=False, error=self._failure)
        return self._newest.view(namespace, name)

    def want(self, namespace: str, name: str, queries: Sequence[str]) -> None:
        """Have these expressions asked for a ModelDeployment from now on."""
        if self._source is not None:
            self._source.want(namespace, name, queries)

    async def run(self) -> None:
        """Read for ever."""
        while True:
            started = self._clock()
            if self._source is not None:
                await self._read(self._source)
                self._telemetry.snapshot_age.set(self._clock() - self._succeeded_at)
            self._on_snapshot()
            await self._sleep(max(0.0, self._period - (self._clock() - started)))

    async def _read(self, source: Source) -> None:
        started = self._clock()
        try:
            self._newest = await source.snapshot(self._wall())
        except Exception as error:
            # Whatever a metrics server makes us stumble over must not end the operator: it means "no metrics".
            log.exception("metrics snapshot failed")
            self._newest, self._failure = None, f"{type(error).__name__}: {error}"
            self._telemetry.snapshots.labels("failed").inc()
            return
        if not self._newest.available:
            self._telemetry.snapshots.labels("failed").inc()
            return
        self._succeeded_at = self._clock()
        self._telemetry.snapshots.labels("ok").inc()
        self._telemetry.snapshot_seconds.observe(self._clock() - started)
