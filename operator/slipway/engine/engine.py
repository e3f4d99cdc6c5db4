"""The engine: everything that runs between the watches and the reconciles, put together.

Watches and lists fill the cache on every instance, so that a standby is warm; only the one that holds the lease works
on the queue. Losing the lease ends the process.
"""

import asyncio
import logging
import math
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.api.events import EventRecord
from slipway.api.status import Phase
from slipway.engine.goldens_reader import GoldensReader
from slipway.engine.listening import EVERYWHERE
from slipway.engine.observe import Observer, Prober, Remarks
from slipway.engine.queue import WorkQueue
from slipway.engine.reading import READ_AGAIN
from slipway.engine.reconcile import Decide, Reconciler
from slipway.engine.resync import Resync
from slipway.engine.server import Health, serve
from slipway.engine.snapshot import SnapshotTicker, Source
from slipway.engine.telemetry import Telemetry
from slipway.engine.witness import Witness
from slipway.kube.apply import Applier
from slipway.kube.cache import Cache, scaled_deployment
from slipway.kube.client import Client
from slipway.kube.events import EventRecorder
from slipway.kube.failures import ApiError
from slipway.kube.kinds import APIS, DEPLOYMENT, MODEL_DEPLOYMENT, VIRTUAL_SERVICE, WATCHED, Kind, watched
from slipway.kube.lease import Elector, LeaseTimes
from slipway.kube.metadata import Key
from slipway.metrics.credentials import Credentials
from slipway.notifications import Notifier, Receiver
from slipway.resources import RenderOptions

__all__ = ["Engine", "Settings"]

log = logging.getLogger(__name__)

LIST_AGAIN = 0.75 * READ_AGAIN
"""Seconds between two lists of all ModelDeployments, which spare the reads of those at rest."""
FAILURES_TOLD = 3
"""Failures in a row after which an object gets an event that says so."""

STEADY = frozenset({Phase.READY.value, Phase.SUSPENDED.value, Phase.STALLED.value})
"""Phases in which a new metrics snapshot is looked at less often."""


def _rests(status: Mapping[str, Any]) -> bool:
    """Whether metrics are of little consequence for what comes next: nothing moves, or nothing gets requests yet.

    What waits for pods is told of them by events.
    """
    versions = status.get("versions") or ()
    return status.get("phase") in STEADY or bool(versions and not any(map(_has_weight, versions)))


def _has_weight(version: Mapping[str, Any]) -> bool:
    weight = version.get("weight") or {}
    return bool(weight.get("intended") or weight.get("applied"))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the installation decides; times in seconds."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to work in; none means all."""
    apis: tuple[str, ...] = tuple(APIS)
    """Optional kinds that may be used, by their names in :data:`~slipway.kube.kinds.APIS`; no others are asked for."""
    prometheus_url: str = ""
    prometheus_credentials: Credentials = field(default_factory=Credentials)
    runtime_image: str = "slipway-runtime:0.1.0"
    cluster_domain: str = "cluster.local"
    mesh_principal: str = ""
    """The operator's identity in the mesh, for servers that ask everybody else for a token."""
    lease: Key | None = None
    """Lease of the leader; None for an operator that is alone."""
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    identity: str = field(default_factory=socket.gethostname)
    http_host: str = EVERYWHERE
    """Probes and scrapes come from outside the pod."""
    http_port: int = 8085
    workers: int = 16
    resync: float = 300.0
    tick: float = 5.0
    """Between two metrics snapshots."""
    rate_window: float = 60.0
    """That rates are measured over."""
    steady_tick: float = 15.0
    """Between two looks at the metrics of an object at rest."""
    drain: float = 20.0
    """For running reconciles at the end."""
    receivers: tuple[Receiver, ...] = ()
    """Who is notified."""
    cluster_name: str = ""
    """What receivers and the page's readers call the cluster."""
    web_port: int | None = None
    """Of the web page; None for no page."""
    web_host: str = "127.0.0.1"
    """Only reachable through a port-forward, which is a right that people have or have not."""
    web_names: tuple[str, ...] = ()
    """Names that the page may be asked for by besides those of this host; none: any, where others can reach it."""


class Engine:
    """One operator process without its watches."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        decide: Decide,
        source: Source | None = None,
        new_prober: Callable[[Callable[[Any], None]], Prober] | None = None,
        telemetry: Telemetry | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``new_prober`` is given how to queue a key; ``wall`` gives seconds since the epoch, ``clock`` runs on."""
        self.settings = settings
        self.telemetry = telemetry or Telemetry()
        self.kinds = watched(settings.apis)
        self.cache = Cache()
        for kind in WATCHED:
            if kind not in self.kinds:
                self.cache.unserved(kind)
        self.queue: WorkQueue[Key] = WorkQueue(clock=clock)
        self._client = client
        self._clock = clock
        self._looked: dict[Key, float] = {}
        self._witnesses: list[Witness] = []
        self._notifier = self._make_notifier()
        self._recorder = EventRecorder(
            client, wall=wall, instance=settings.identity, on_drop=self.telemetry.events_dropped.inc
        )
        self.resync = Resync(
            client,
            self.cache,
            self.telemetry,
            namespaces=settings.namespaces,
            kinds=self.kinds,
            period=settings.resync,
            often=LIST_AGAIN,
            clock=clock,
            on_changed=self.queue.add,
        )
        self.health = Health(self.queue, self.resync, self.telemetry, clock=clock)
        self.ticker = SnapshotTicker(
            source,
            period=settings.tick,
            wall=wall,
            clock=clock,
            on_snapshot=self.queue_active,
            telemetry=self.telemetry,
        )
        applier, remarks = Applier(client, self.cache), Remarks()
        self._prober = new_prober(self.queue.add) if new_prober else None
        self._elector = (
            Elector(client, settings.lease, settings.identity, times=settings.lease_times, clock=clock, wall=wall)
            if settings.lease
            else None
        )
        if self._elector is not None:
            elector = self._elector
            client.may_write = lambda: elector.fresh
        self._reconciler = Reconciler(
            client=client,
            cache=self.cache,
            observer=Observer(
                self.cache,
                applier,
                remarks,
                GoldensReader(client, clock),
                cluster_domain=settings.cluster_domain,
                prober=self._prober,
            ),
            applier=applier,
            remarks=remarks,
            decide=decide,
            metrics=self.ticker.view,
            want=self.ticker.want,
            render=RenderOptions(
                runtime_image=settings.runtime_image,
                cluster_domain=settings.cluster_domain,
                mesh_principal=settings.mesh_principal,
            ),
            recorder=self._recorder,
            telemetry=self.telemetry,
            wall=wall,
            clock=clock,
            listed_at=lambda: self.resync.models_listed_at,
            witnesses=self._witnesses,
        )

    def attend(self, witness: Witness) -> None:
        """Tell another witness what is measured and decided from now on."""
        self._witnesses.append(witness)

    def _make_notifier(self) -> Notifier | None:
        settings = self.settings
        if not settings.receivers:
            return None
        count, name = self.telemetry.notified, settings.cluster_name
        notifier = Notifier(settings.receivers, count=count, cluster=name, clock=self._clock)
        self.attend(notifier)
        return notifier

    def event(self, kind: Kind, change: str | None, obj: Mapping[str, Any]) -> None:
        """Take a watch event: ``change`` is ADDED, MODIFIED, DELETED or None for an object of the first list."""
        self.telemetry.watch_events.labels(kind.plural).inc()
        known = self.cache.remove(kind, obj) if change == "DELETED" else self.cache.put(kind, obj)
        if not known:
            return
        owner = self.cache.owner(kind, obj)
        if owner is not None:
            self.queue.add(owner)
        scaled = scaled_deployment(obj)
        if scaled is not None:
            self._queue_owner_of(scaled)
        if kind == VIRTUAL_SERVICE:
            self._queue_rivals(obj)

    def queue_active(self) -> None:
        """Queue what a new metrics snapshot may move: at once what is moving, now and then what rests."""
        for witness in self._witnesses:
            try:
                witness.measured()
            except Exception:
                # Whoever only looks on must not end the operator.
                log.exception("new metrics could not be told to %s", type(witness).__name__)
        now = self._clock()
        for key in self.cache.keys(MODEL_DEPLOYMENT):
            rests = _rests((self.cache.get(MODEL_DEPLOYMENT, key) or {}).get("status") or {})
            if rests and key in self._looked and self._turn(key, self._looked[key]) == self._turn(key, now):
                continue
            self._looked[key] = now
            if rests:
                # Whoever edits an object is not to wait for looks at thousands to which nothing happens.
                self.queue.add_patiently(key)
            else:
                self.queue.add(key)

    def _turn(self, key: Key, at: float) -> int:
        """The period that a moment lies in; those of different objects begin at different moments, so that thousands
        that rest are not all looked at at once."""
        offset = zlib.crc32(str(key).encode()) / 2**32
        return math.floor(at / self.settings.steady_tick + offset)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; raises when the lease is lost or a part of the engine fails.

        At the end, no more keys are taken, running reconciles end, events are posted and the lease is given up.
        """
        runner = await serve(self.health, self.telemetry, self.settings.http_host, self.settings.http_port)
        try:
            async with asyncio.TaskGroup() as group:
                background = [
                    group.create_task(self.health.run(), name="health"),
                    group.create_task(self.resync.run(), name="resync"),
                    group.create_task(self.ticker.run(), name="snapshots"),
                    group.create_task(self._recorder.run(), name="events"),
                ]
                if self._notifier is not None:
                    background.append(group.create_task(self._notifier.run(), name="notifications"))
                leading = group.create_task(self._lead(), name="leader")
                await stop.wait()
                await self._wind_down(leading)
                for task in background:
                    task.cancel()
        finally:
            await runner.cleanup()

    async def _lead(self) -> None:
        """Work on the queue while leading."""
        await self.resync.primed.wait()
        if self._elector is not None:
            await self._elector.acquire()
        self.health.leading = True
        async with asyncio.TaskGroup() as group:
            holding = group.create_task(self._elector.hold(), name="lease") if self._elector is not None else None
            workers = [group.create_task(self._work(), name=f"worker {n}") for n in range(self.settings.workers)]
            await asyncio.wait(workers)
            if holding is not None:
                holding.cancel()

    async def _wind_down(self, leading: asyncio.Task[None]) -> None:
        self.queue.close()
        if not self.health.leading:
            leading.cancel()
        _, running = await asyncio.wait([leading], timeout=self.settings.drain)
        for task in running:
            log.warning("a reconcile did not end within %s s and is cut off", self.settings.drain)
            task.cancel()
        if self._prober is not None:
            await self._prober.close()
        await self._recorder.drain(timeout=2.0)
        if self._notifier is not None:
            await self._notifier.drain(timeout=2.0)
        if self._elector is not None:
            await self._elector.release()
        self.health.leading = False

    async def _work(self) -> None:
        while (taken := await self.queue.take()) is not None:
            key, waited = taken
            self.telemetry.queue_seconds.observe(waited)
            started = self._clock()
            try:
                await self._reconcile(key)
            finally:
                self.telemetry.reconcile_seconds.observe(self._clock() - started)
                self.queue.done(key)

    async def _reconcile(self, key: Key) -> None:
        """Run one reconcile and settle when the next one is due."""
        try:
            outcome = await self._reconciler.reconcile(key)
            if outcome.result == "restored":
                await self.resync.once()
        except ApiError as error:
            wait = self.queue.retry(key)
            log.warning("%s: %s; next try in %.1f s", key, error, wait)
            self._failed(key, str(error))
            return
        except Exception as error:
            # The boundary of a worker: a defect met by one object must not stop the others.
            wait = self.queue.retry(key)
            log.exception("%s: reconcile failed; next try in %.1f s", key, wait)
            self._failed(key, f"a defect of the operator: {type(error).__name__}: {error}; its log has more")
            return
        self.telemetry.reconciles.labels(outcome.result).inc()
        if outcome.result in ("conflict", "restored"):
            self.queue.retry(key)
            return
        self.queue.forget(key)
        if outcome.result == "gone":
            self._looked.pop(key, None)
        if outcome.requeue_after is not None:
            self.queue.add_after(key, outcome.requeue_after)

    def _failed(self, key: Key, text: str) -> None:
        """Count a failure; once it is no accident the object says so, its status being as old as the last success."""
        self.telemetry.reconciles.labels("error").inc()
        obj = self.cache.get(MODEL_DEPLOYMENT, key)
        if obj is not None and self.queue.failures(key) == FAILURES_TOLD:
            self._recorder.record(obj, EventRecord("ReconcileFailed", text, "Warning"))

    def _queue_owner_of(self, deployment: Key) -> None:
        """A scaler of a Deployment has come, changed or gone."""
        found = self.cache.get(DEPLOYMENT, deployment)
        owner = self.cache.owner(DEPLOYMENT, found) if found is not None else None
        if owner is not None:
            self.queue.add(owner)

    def _queue_rivals(self, route: Mapping[str, Any]) -> None:
        """A VirtualService has come, changed or gone: look at the ModelDeployments that share a host with it."""
        namespace = route["metadata"].get("namespace", "")
        for host in (route.get("spec") or {}).get("hosts") or ():
            for other in self.cache.claiming(host, namespace):
                owner = self.cache.owner(VIRTUAL_SERVICE, other)
                if owner is not None:
                    self.queue.add(owner)
