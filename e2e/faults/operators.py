"""Operator processes in virtual time: the engine as it is shipped, its watches, and a kubelet that starts it again."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.api.observed import ProbeView
from slipway.engine.decide import Options, decide
from slipway.engine.engine import Engine, Settings
from slipway.kube.client import Client
from slipway.kube.kinds import MODEL_DEPLOYMENT, SHARED, Kind
from slipway.kube.metadata import OWN_SELECTOR, label
from slipway.kube.transport import Transport

from e2e.faults.api import Api, Connection, Network
from e2e.faults.injection import Injector, Plan, Storm
from e2e.sandbox.apiserver.store import Change

__all__ = ["AllPass", "Operator", "Watches"]

WATCH_DELAY = 0.02
"""Seconds from a change to its event."""
RESTART = 1.0
"""Seconds until a process that ended is started again."""


class AllPass:
    """A prober that finds every server in order."""

    def view(self, revision: Any, pods: Any, goldens: Any, model_name: str, *, key: Any = None) -> ProbeView:
        """Passed."""
        return ProbeView(passed=True)

    async def close(self) -> None:
        """Nothing is held."""


class Watches:
    """Stands for kopf: tells an engine every change that the store tells."""

    def __init__(self, api: Api, engine: Engine, namespace: str) -> None:
        self._api = api
        self._engine = engine
        self._namespace = namespace
        self._ends: list[Callable[[], None]] = []
        self.silent = False
        """Whether the streams are open and tell nothing."""

    def start(self) -> None:
        """List and watch."""
        for kind in self._engine.kinds:
            if not self._api.serves(kind):
                continue
            for obj in self._api.objects(kind, self._namespace):
                self._tell(kind, None, obj)
            self._ends.append(self._api.listen(kind, self._changed(kind)))

    def again(self) -> None:
        """Begin anew, after the streams have broken."""
        self.stop()
        self.silent = False
        self.start()

    def stop(self) -> None:
        """End the watches."""
        for end in self._ends:
            end()
        self._ends = []

    def _changed(self, kind: Kind) -> Callable[[Change], None]:
        loop = asyncio.get_running_loop()

        def changed(change: Change) -> None:
            if not self.silent:
                loop.call_later(WATCH_DELAY, self._tell, kind, change.type.value, change.new.obj)

        return changed

    def _tell(self, kind: Kind, change: str | None, obj: Mapping[str, Any]) -> None:
        name, _, value = OWN_SELECTOR.partition("=")
        ours = kind in SHARED or kind == MODEL_DEPLOYMENT or label(obj, name) == value
        if ours and not self.silent and obj["metadata"].get("namespace") == self._namespace:
            self._engine.event(kind, change, obj)


@dataclass
class Operator:
    """One Deployment's worth of operator: a process, and another when it ends."""

    api: Api
    settings: Settings
    wall: Callable[[], float]
    source: Any
    plan: Plan | None = None
    """What strikes its first process; a storm strikes the following ones as well."""
    connect: Callable[[Api, str, Network], Transport] = Connection
    """Makes the way to the API server, for an identity."""
    deaths: int = 0
    failures: list[BaseException] = field(default_factory=list)
    """Why processes ended by themselves."""
    ended: list[float] = field(default_factory=list)
    """When processes ended."""
    network: Network = field(default_factory=Network)
    injector: Injector = field(init=False)
    engine: Engine = field(init=False)
    watches: Watches = field(init=False)
    _process: asyncio.Task[None] | None = None
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _supervision: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start it; it is started again whenever it ends."""
        self._supervision = asyncio.ensure_future(self._supervise())

    async def _supervise(self) -> None:
        plan = self.plan
        while not self._stop.is_set():
            self._begin(plan)
            if self.ended:
                self.injector.arm()
            plan = plan if isinstance(plan, Storm) else None
            assert self._process is not None
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._process])
            self.ended.append(asyncio.get_running_loop().time())
            self.injector.dead = True
            self.watches.stop()
            if not self._process.cancelled() and (error := self._process.exception()) is not None:
                self.failures.append(error)
            if not self._stop.is_set():
                await asyncio.sleep(RESTART)

    def _begin(self, plan: Plan | None) -> None:
        self.injector = Injector(self.connect(self.api, self.settings.identity, self.network), plan, self._die)
        options = Options(cluster_domain=self.settings.cluster_domain, runtime_image=self.settings.runtime_image)
        loop = asyncio.get_running_loop()
        self.engine = Engine(
            self.settings,
            Client(self.injector),
            decide=lambda raw, observed, metrics, now: decide(raw, observed, metrics, options, now),
            source=self.source,
            new_prober=lambda queue: AllPass(),
            wall=self.wall,
            clock=loop.time,
        )
        self.watches = Watches(self.api, self.engine, self.settings.namespaces[0])
        self.watches.start()
        self._process = asyncio.ensure_future(self.engine.run(self._stop))

    def _die(self) -> None:
        self.deaths += 1
        assert self._process is not None
        self._process.cancel()

    def kill(self) -> None:
        """kill -9."""
        self.injector.die()

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._stop.set()
        if self._supervision is not None:
            await self._supervision
