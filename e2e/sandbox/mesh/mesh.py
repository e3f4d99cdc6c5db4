"""The sandbox's mesh: watches the API server and keeps one Envoy in step, as istiod does for its proxies."""

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

from aiohttp import web

from e2e.sandbox.mesh.discovery import RefusedError
from e2e.sandbox.mesh.keys import KeyStore
from e2e.sandbox.mesh.names import Json
from e2e.sandbox.mesh.policies import PolicyObjects, key_addresses
from e2e.sandbox.mesh.proxy import EnvoyFailedError, EnvoyProxy
from e2e.sandbox.mesh.reflector import ApiAccess, Reflector
from e2e.sandbox.mesh.report import config_report, weight_report
from e2e.sandbox.mesh.translation import DEFAULT_GATEWAY_PORT, MeshConfig, MeshObjects, translate

_NETWORKING = "/apis/networking.istio.io/v1"
_SECURITY = "/apis/security.istio.io/v1"
_POLICY_PATHS = (
    f"{_SECURITY}/requestauthentications",
    f"{_SECURITY}/authorizationpolicies",
    "/apis/networking.istio.io/v1alpha3/envoyfilters",
)

_log = logging.getLogger(__name__)


class Mesh:
    """One Envoy that is the gateway and every mesh client at once.

    `propagation_delay` (seconds) lies between a change seen at the API server and Envoy being told; it may be set at
    any time, also for changes under way, and `math.inf` stops the mesh from learning anything. `gateway_port` is the
    number the gateway's listener goes by, not the port that is listened on (`listen_port`, 0: a free one). `clock`
    (seconds) is what the delay is measured on.
    """

    def __init__(
        self,
        api_url: str,
        token: str,
        ca_file: Path | None,
        *,
        work_dir: Path,
        listen_port: int = 0,
        propagation_delay: float = 0.1,
        gateway_port: int = DEFAULT_GATEWAY_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        access = ApiAccess(api_url, token, ca_file)
        self._virtual_services = Reflector(access, f"{_NETWORKING}/virtualservices", self._note)
        self._destination_rules = Reflector(access, f"{_NETWORKING}/destinationrules", self._note)
        self._services = Reflector(access, "/api/v1/services", self._note)
        self._slices = Reflector(access, "/apis/discovery.k8s.io/v1/endpointslices", self._note)
        self._pods = Reflector(access, "/api/v1/pods", self._note)
        self._http_routes = Reflector(access, "/apis/gateway.networking.k8s.io/v1/httproutes", self._note)
        self._policies = tuple(Reflector(access, path, self._note) for path in _POLICY_PATHS)
        self._keys = KeyStore(self._note)
        self._proxy = EnvoyProxy(work_dir, listen_port)
        self._gateway_port = gateway_port
        self._delay = propagation_delay
        self._clock = clock
        self._pending: deque[tuple[float, MeshObjects]] = deque()
        self._dirty = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._version = 0
        self._effect = asyncio.Condition()
        self._refusal = ""

    @property
    def url(self) -> str:
        """Where requests go in; the Host header says to whom."""
        return self._proxy.url

    @property
    def admin_url(self) -> str:
        """Where ``/config`` and ``/weights`` say what is in effect."""
        return self._proxy.server_url

    @property
    def envoy_admin_url(self) -> str:
        """Envoy's own administration, with its metrics at ``/stats/prometheus``."""
        return self._proxy.envoy_admin_url

    @property
    def propagation_delay(self) -> float:
        """Seconds between a change and Envoy being told."""
        return self._delay

    @propagation_delay.setter
    def propagation_delay(self, delay: float) -> None:
        self._delay = delay
        self._wake.set()

    @property
    def version(self) -> int:
        """Counts the configurations Envoy has put in effect."""
        return self._version

    @property
    def backlog(self) -> int:
        """How many states of the cluster have been seen and are not in effect yet."""
        return len(self._pending)

    def weights(self) -> list[Json]:
        """The weights in effect, route by route, as ``/weights`` shows them."""
        return weight_report(self._proxy.applied)

    async def changed(self) -> None:
        """Wait until another configuration is in effect."""
        async with self._effect:
            await self._effect.wait()

    async def start(self) -> Self:
        """Start Envoy, read all objects and return once they are in effect.

        Raises EnvoyFailedError when Envoy does not come up.
        """
        self._proxy.application.router.add_get("/config", self._show_config)
        self._proxy.application.router.add_get("/weights", self._show_weights)
        await self._proxy.start()
        for reflector in self._reflectors():
            reflector.start()
        await asyncio.gather(*(reflector.listed() for reflector in self._reflectors()))
        await self._push(self._snapshot())
        self._task = asyncio.create_task(self._follow(), name="mesh")
        return self

    async def stop(self) -> None:
        """Stop watching and end Envoy."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._keys.stop()
        await asyncio.gather(*(reflector.stop() for reflector in self._reflectors()))
        await self._proxy.stop()

    def _reflectors(self) -> tuple[Reflector, ...]:
        cluster = (self._services, self._slices, self._pods)
        return self._virtual_services, self._destination_rules, *cluster, self._http_routes, *self._policies

    def _note(self) -> None:
        self._dirty = True
        self._wake.set()

    def _snapshot(self) -> MeshObjects:
        authentications, authorizations, filters = (reflector.objects for reflector in self._policies)
        self._keys.want(key_addresses(authentications))
        policies = PolicyObjects(authentications, authorizations, filters, dict(self._keys.keys))
        return MeshObjects(
            virtual_services=self._virtual_services.objects,
            destination_rules=self._destination_rules.objects,
            services=self._services.objects,
            endpoint_slices=self._slices.objects,
            pods=self._pods.objects,
            http_routes=self._http_routes.objects,
            policies=policies,
        )

    async def _follow(self) -> None:
        """Each state of the cluster takes effect after its delay; of several that are due the newest is enough."""
        while True:
            self._wake.clear()
            if self._dirty:
                self._dirty = False
                self._pending.append((self._clock(), self._snapshot()))
            due = None
            while self._pending and self._pending[0][0] + self._delay <= self._clock():
                due = self._pending.popleft()[1]
            if due is not None:
                await self._push(due)
                continue
            await self._sleep()

    async def _sleep(self) -> None:
        """Until something changes or the oldest pending state is due."""
        left = math.inf
        if self._pending:
            left = self._pending[0][0] + self._delay - self._clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(left) else max(left, 0)):
                await self._wake.wait()

    async def _push(self, objects: MeshObjects) -> None:
        try:
            config = translate(objects, self._gateway_port)
            if config == self._proxy.applied:
                return
            await self._proxy.apply(config)
        except (RefusedError, EnvoyFailedError) as refusal:
            self._keep_old(str(refusal))
            return
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # Somebody stored an object that the kinds' schemas would not have let pass.
            self._keep_old(f"cannot be translated: {error!r}")
            return
        self._refusal = ""
        async with self._effect:
            self._version += 1
            self._effect.notify_all()

    def _keep_old(self, reason: str) -> None:
        if reason != self._refusal:
            _log.warning("the mesh keeps its old configuration: %s", reason)
        self._refusal = reason

    async def _show_config(self, _: web.Request) -> web.Response:
        config: MeshConfig = self._proxy.applied
        return web.json_response(config_report(config, self._version, self._refusal, self._delay))

    async def _show_weights(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._version, "routes": self.weights()})
