"""The operator as a process: kopf watches, the engine works.

kopf is used as a shell only: login, watches, and one event handler per kind that hands the object over. Handlers that
keep state would write annotations and finalizers into users' objects, so there are none, and kopf writes nothing.
"""

import asyncio
import contextlib
import functools
import logging
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import kopf
from kubernetes.aio.client.configuration import Configuration

from slipway.engine.decide import Options, decide
from slipway.engine.engine import Engine, Settings
from slipway.engine.probe import Prober, ProbeService
from slipway.engine.probe_client import LARGE_AT_ONCE
from slipway.engine.telemetry import Telemetry
from slipway.kube.client import PAGE, Client
from slipway.kube.kinds import MODEL_DEPLOYMENT, SHARED, WATCHED, Kind
from slipway.kube.metadata import OWN_SELECTOR, Key
from slipway.kube.transport import ApiTransport, Transport, load_configuration
from slipway.metrics import PrometheusSource
from slipway.resources import pods_host
from slipway.web import Answers, Records, serve_page

__all__ = ["EXIT_TIMEOUT", "kopf_settings", "make_engine", "operate", "registry_of"]

log = logging.getLogger(__name__)

EXIT_TIMEOUT = 30.0
"""Seconds after which kopf kills a process of ``slipway run`` that does not end by itself."""


async def operate(
    settings: Settings,
    *,
    stop: asyncio.Event | None = None,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
    exit_timeout: float | None = None,
) -> None:
    """Run the operator until a signal or ``stop``; raises when a part of it fails or the lease is lost.

    ``wrap`` may put something between the client and the network. With ``exit_timeout`` the whole process is killed so
    many seconds after the end began, whatever else runs in it. Needs the main thread, for signals.
    """
    stop = stop or asyncio.Event()
    telemetry = Telemetry(version("slipway"))
    transport = wrap(ApiTransport(await load_configuration()))
    async with Client(transport, on_call=telemetry.called) as client:
        engine = make_engine(settings, client, telemetry)
        unwatch = asyncio.Event()
        async with _page(engine, settings), asyncio.TaskGroup() as group:
            working = group.create_task(engine.run(stop), name="engine")
            group.create_task(_watch(engine, settings, stop, unwatch, exit_timeout), name="kopf")
            await asyncio.wait([working])
            unwatch.set()
    log.info("stopped")


@contextlib.asynccontextmanager
async def _page(engine: Engine, settings: Settings) -> AsyncIterator[None]:
    """The web page, where one is asked for; it is there on standbys as well."""
    if settings.web_port is None:
        yield
        return
    records = Records(engine.cache, engine.ticker.view, time.time)
    engine.attend(records)
    runner = await serve_page(
        Answers(engine.cache, records),
        lambda: engine.health.leading,
        time.time,
        host=settings.web_host,
        port=settings.web_port,
        names=settings.web_names,
    )
    try:
        yield
    finally:
        await runner.cleanup()


def make_engine(settings: Settings, client: Client, telemetry: Telemetry) -> Engine:
    """The engine with its real parts."""
    options = Options(cluster_domain=settings.cluster_domain, runtime_image=settings.runtime_image)
    large = asyncio.Semaphore(LARGE_AT_ONCE)
    return Engine(
        settings,
        client,
        decide=lambda raw, observed, metrics, now: decide(raw, observed, metrics, options, now),
        source=_source(settings),
        new_prober=lambda queue: ProbeService(queue, functools.partial(_prober, settings, large)),
        telemetry=telemetry,
    )


def _prober(settings: Settings, large: asyncio.Semaphore, key: Hashable) -> Prober:
    """What asks the servers of one ModelDeployment, by a name that our own proxy knows where we have one."""
    if not settings.mesh_principal or not isinstance(key, Key):
        return Prober(large=large)
    return Prober(large=large, host=pods_host(key.namespace, key.name, settings.cluster_domain))


def _source(settings: Settings) -> PrometheusSource | None:
    if not settings.prometheus_url:
        return None
    return PrometheusSource(
        settings.prometheus_url, rate_window=settings.rate_window, credentials=settings.prometheus_credentials
    )


def registry_of(
    take: Callable[[Kind, str | None, Mapping[str, Any]], None],
    configuration: Callable[[], Awaitable[Configuration]] = load_configuration,
    kinds: Sequence[Kind] = WATCHED,
) -> kopf.OperatorRegistry:
    """kopf's handlers: every event of one of these kinds goes to ``take``."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="login")(functools.partial(_login, configuration))
    for kind in kinds:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(
            functools.partial(_hand_over, take, kind)
        )
    return registry


class _NoDifferences(kopf.DiffBaseStorage):
    """kopf copies every object of every event several times to find out what has changed, which nobody here asks."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Nothing is compared."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:
        """Nothing is known."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is kept."""


def kopf_settings(namespaced: bool, exit_timeout: float | None) -> kopf.OperatorSettings:
    """Settings for watches that neither fall silent nor end for nothing."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = _NoDifferences()
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    # Whole seconds: they travel in the URL. Spread, so that not all watches end at once.
    settings.watching.server_timeout = 300 + int(120 * random.random())  # noqa: S311  spreads load, hides nothing
    settings.watching.client_timeout = settings.watching.server_timeout + 30
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = PAGE
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.queueing.idle_timeout = 2.0
    settings.scanning.disabled = namespaced
    settings.process.ultimate_exiting_timeout = exit_timeout
    for kind in WATCHED:
        if kind != MODEL_DEPLOYMENT and kind not in SHARED:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = OWN_SELECTOR
    return settings


async def _watch(
    engine: Engine, settings: Settings, stop: asyncio.Event, unwatch: asyncio.Event, exit_timeout: float | None
) -> None:
    """Run kopf until ``unwatch``; its end for any other reason ends the operator."""
    # kopf cancels every task that was not there before it when it ends.
    others = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry_of(engine.event, kinds=engine.kinds),
        settings=kopf_settings(bool(settings.namespaces), exit_timeout),
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        standalone=True,
        stop_flag=unwatch,
    )
    # kopf has just claimed the signals, but work has to end before the watches do.
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await kopf.run_tasks(tasks, ignored=others)
    stop.set()


async def _login(configuration: Callable[[], Awaitable[Configuration]], **_: Any) -> kopf.ConnectionInfo:
    """Credentials as they are now; kopf asks again once they are refused."""
    config = await configuration()
    header = await config.get_api_key_with_prefix("BearerToken") or ""
    scheme, _space, token = header.partition(" ")
    return kopf.ConnectionInfo(
        server=str(config.host),
        ca_path=config.ssl_ca_cert,
        insecure=not config.verify_ssl,
        scheme=scheme or None,
        token=token.strip() or None,
        certificate_path=config.cert_file,
        private_key_path=config.key_file,
        proxy_url=config.proxy,
    )


async def _hand_over(
    take: Callable[[Kind, str | None, Mapping[str, Any]], None], kind: Kind, event: Mapping[str, Any], **_: Any
) -> None:
    take(kind, event["type"], {"apiVersion": kind.api_version, "kind": kind.name} | event["object"])
