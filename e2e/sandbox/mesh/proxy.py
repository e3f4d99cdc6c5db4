"""A real Envoy process, kept at the configuration it is given."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Self

import aiohttp
from aiohttp import web

from e2e.sandbox.binaries import envoy_path
from e2e.sandbox.mesh.bootstrap import ROUTE_CONFIG, bootstrap, discovery_source
from e2e.sandbox.mesh.child import Child, ChildEndedError
from e2e.sandbox.mesh.discovery import CLUSTERS, ENDPOINTS, EXTENSIONS, ROUTES, DiscoveryServer
from e2e.sandbox.mesh.names import Json
from e2e.sandbox.mesh.policies import JWT_FILTER, merged
from e2e.sandbox.mesh.translation import MeshConfig

HOST = "127.0.0.1"
START_SECONDS = 60.0
APPLY_SECONDS = 60.0
REPLACE_SECONDS = 2.0
DRAIN_SECONDS = 5.0
"""How long a cluster without routes is kept for the requests still under way."""


class EnvoyFailedError(Exception):
    """Envoy did not start or has ended; the message ends with its last log lines."""


class EnvoyProxy:
    """One Envoy with one HTTP listener. Changes are make-before-break, so no request fails because of one."""

    def __init__(self, work_dir: Path, listen_port: int = 0) -> None:
        self._work_dir = work_dir
        self._listen_port = listen_port
        self._discovery = DiscoveryServer()
        self._application = web.Application()
        self._runner: web.AppRunner | None = None
        self._child: Child | None = None
        self._applied = MeshConfig()
        self._served: dict[str, Json] = {}
        self._lingering: dict[str, Json] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._lock = asyncio.Lock()
        self._reaper: set[asyncio.Task[None]] = set()
        self.url = ""
        self.envoy_admin_url = ""
        self.server_url = ""

    @property
    def application(self) -> web.Application:
        """The web application that answers Envoy's polls; paths may be added before the start."""
        return self._application

    @property
    def applied(self) -> MeshConfig:
        """The configuration Envoy has confirmed."""
        return self._applied

    async def start(self) -> Self:
        """Start Envoy with no routes.

        Raises EnvoyFailedError when it does not come up.
        """
        self._work_dir.mkdir(parents=True, exist_ok=True)
        self._discovery.register(self._application)
        self._runner = web.AppRunner(self._application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.server_url = f"http://{HOST}:{port}"
        await self._discovery.publish(CLUSTERS, "", [])
        await self._discovery.publish(ROUTES, ROUTE_CONFIG, [_route_config([])])
        await self._discovery.publish(EXTENSIONS, JWT_FILTER, [_named_filter(MeshConfig().jwt_filter)])
        await self._launch(port)
        return self

    async def apply(self, config: MeshConfig) -> None:
        """Bring Envoy to `config` and return when it is in effect.

        Raises RefusedError when Envoy turns the clusters or the routes down, as it then keeps what it had, and
        EnvoyFailedError when it does not answer.
        """
        async with self._lock:
            try:
                self._running().check()
                async with asyncio.timeout(APPLY_SECONDS):
                    await self._apply(config)
            except ChildEndedError as error:
                raise EnvoyFailedError(str(error)) from error
            except TimeoutError:
                raise EnvoyFailedError(f"Envoy did not take its configuration within {APPLY_SECONDS:g} s") from None

    def _running(self) -> Child:
        if self._child is None:
            raise EnvoyFailedError("Envoy was not started")
        return self._child

    async def _apply(self, config: MeshConfig) -> None:
        wanted = {cluster["name"]: cluster for cluster in config.clusters}
        routed = routed_clusters(config)
        known = {cluster["name"] for cluster in self._applied.clusters}
        # Endpoints that only the old routes still use are changed after the routes.
        later = [name for name in config.endpoints if name in known and name not in routed]
        for name in config.endpoints.keys() - set(later):
            await self._discovery.publish(ENDPOINTS, name, [config.endpoints[name]])
        self._keep_unrouted(wanted, routed)
        await self._publish_clusters(wanted)
        # Routes name the requirements in the filter: those of the old routes go once no route names them any more.
        await self._publish_filter(merged(self._applied.jwt_filter, config.jwt_filter))
        await self._discovery.publish(ROUTES, ROUTE_CONFIG, [_route_config(list(config.virtual_hosts))])
        await self._discovery.confirmed(ROUTES, ROUTE_CONFIG)
        await self._publish_filter(config.jwt_filter)
        for name in later:
            await self._discovery.publish(ENDPOINTS, name, [config.endpoints[name]])
        for name in config.endpoints:
            await self._discovery.confirmed(ENDPOINTS, name)
        self._applied = config

    async def stop(self) -> None:
        """End Envoy and the server it polls."""
        for handle in self._expiries.values():
            handle.cancel()
        for task in self._reaper:
            task.cancel()
        await asyncio.gather(*self._reaper, return_exceptions=True)
        if self._child is not None:
            await self._child.stop()
        await self._discovery.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _keep_unrouted(self, wanted: dict[str, Json], routed: set[str]) -> None:
        """Let clusters go that no route names any more, but only once their last requests had time to finish.

        A cluster that a new route still names goes at once: that route must fail, as it does in Istio.
        """
        for cluster in self._applied.clusters:
            name = cluster["name"]
            if name not in wanted and name not in routed and name not in self._lingering:
                self._lingering[name] = cluster
                loop = asyncio.get_running_loop()
                self._expiries[name] = loop.call_later(DRAIN_SECONDS, self._expire, name)
        for name in [name for name in self._lingering if name in wanted or name in routed]:
            del self._lingering[name]
            if name in self._expiries:
                self._expiries.pop(name).cancel()

    def _expire(self, name: str) -> None:
        del self._expiries[name]
        task = asyncio.create_task(self._drop(name))
        self._reaper.add(task)
        task.add_done_callback(self._reaper.discard)

    async def _drop(self, name: str) -> None:
        async with self._lock:
            if self._lingering.pop(name, None) is not None:
                await self._publish_clusters({cluster["name"]: cluster for cluster in self._applied.clusters})

    async def _publish_clusters(self, wanted: dict[str, Json]) -> None:
        served = {**self._lingering, **wanted}
        # Envoy replaces a cluster that changes; the new one asks for its endpoints anew and serves when it has them.
        replaced = {
            name: self._discovery.subscriptions(ENDPOINTS, name)
            for name, cluster in served.items()
            if self._served.get(name, cluster) != cluster
        }
        if await self._discovery.publish(CLUSTERS, "", [_with_sources(cluster) for cluster in served.values()]):
            await self._discovery.confirmed(CLUSTERS, "")
            # A new cluster takes requests only once it knows its endpoints.
            for name in wanted:
                await self._discovery.confirmed(ENDPOINTS, name)
            await self._replaced(replaced)
        for name in self._served.keys() - served.keys():
            await self._discovery.drop(ENDPOINTS, name)
        self._served = served

    async def _replaced(self, before: dict[str, int]) -> None:
        # After a refusal Envoy may have replaced some clusters already, and will not do it again.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLACE_SECONDS):
                for name, subscriptions in before.items():
                    await self._discovery.served_anew(ENDPOINTS, name, subscriptions)

    async def _publish_filter(self, typed_config: Json) -> None:
        if await self._discovery.publish(EXTENSIONS, JWT_FILTER, [_named_filter(typed_config)]):
            await self._discovery.confirmed(EXTENSIONS, JWT_FILTER)

    async def _launch(self, discovery_port: int) -> None:
        config = self._work_dir / "bootstrap.json"
        admin = self._work_dir / "admin-address"
        log = self._work_dir / "envoy.log"
        admin.unlink(missing_ok=True)
        addresses = ((HOST, self._listen_port), (HOST, 0), (HOST, discovery_port))
        config.write_text(json.dumps(bootstrap(*addresses), indent=1))
        command = [str(envoy_path()), "--config-path", str(config), "--admin-address-path", str(admin)]
        command += ["--log-path", str(log), "--log-level", "warning"]
        # The recorded configuration uses fields that Envoy calls deprecated, with a line of log for each use.
        command += ["--component-log-level", "misc:error", "--concurrency", "2", "--disable-hot-restart"]
        self._child = Child(command, log)
        await self._child.start()
        try:
            async with asyncio.timeout(START_SECONDS):
                while not (admin.exists() and admin.read_text()):
                    await self._pause(self._child)
                self.envoy_admin_url = f"http://{admin.read_text().strip()}"
                self.url = await self._listening(self._child)
        except (TimeoutError, ChildEndedError) as error:
            last_words = self._child.last_words()
            await self.stop()
            raise EnvoyFailedError(f"Envoy was not ready within {START_SECONDS:g} s: {last_words}") from error

    async def _listening(self, child: Child) -> str:
        async with aiohttp.ClientSession(self.envoy_admin_url) as session:
            while True:
                async with session.get("/ready") as ready:
                    if ready.status == 200:
                        break
                await self._pause(child)
            async with session.get("/listeners?format=json") as answer:
                listeners = await answer.json(content_type=None)
        address = listeners["listener_statuses"][0]["local_address"]["socket_address"]
        return f"http://{HOST}:{address['port_value']}"

    async def _pause(self, child: Child) -> None:
        child.check()
        await asyncio.sleep(0.02)


def routed_clusters(config: MeshConfig) -> set[str]:
    """The clusters that some route of a configuration names."""
    names: set[str] = set()
    for host in config.virtual_hosts:
        for route in host["routes"]:
            action = route.get("route", {})
            names.update(item["name"] for item in action.get("weighted_clusters", {}).get("clusters", []))
            names.update(item["cluster"] for item in action.get("request_mirror_policies", []))
            if "cluster" in action:
                names.add(action["cluster"])
    return names


def _with_sources(cluster: Json) -> Json:
    # Envoy would take a dot in the name for the end of the metric label.
    stat_name = cluster["name"].replace(".", "_")
    return {**cluster, "alt_stat_name": stat_name, "eds_cluster_config": {"eds_config": discovery_source()}}


def _named_filter(typed_config: Json) -> Json:
    return {"name": JWT_FILTER, "typed_config": typed_config}


def _route_config(virtual_hosts: list[Json]) -> Json:
    return {"name": ROUTE_CONFIG, "virtual_hosts": virtual_hosts}
