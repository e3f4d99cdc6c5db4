"""The API server as a whole: TLS, listening, starting and stopping."""

from __future__ import annotations

import asyncio
import random
import ssl
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from . import certificates
from .access import User
from .audit import AuditLog
from .cluster import Cluster, utc_now
from .exchange import MOST_BODY_BYTES
from .handlers import Fault, Handlers

AUDIT_LOG = "audit.log"
_SNAPSHOT = "objects.json"


class ApiServer:
    """A Kubernetes API server for the sandbox; nothing outside it can tell that no etcd stands behind it.

    `tokens` maps bearer tokens to users. `data_dir` holds certificates and, if `keep` is set, the objects, so that a
    restart goes on with the same resource versions; without one a temporary folder is used. `advertise` is the address
    discovery gives, by default the one listened on. `allow_loopback_endpoints` lets EndpointSlices have 127.x
    addresses, which a real server refuses: the sandbox's pods have such addresses.
    """

    def __init__(
        self,
        tokens: Mapping[str, User],
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: Path | None = None,
        advertise: str = "",
        allow_loopback_endpoints: bool = True,
        keep: bool = False,
        clock: Callable[[], datetime] = utc_now,
        chance: random.Random | None = None,
    ) -> None:
        self._host, self._port, self._advertise, self._keep = host, port, advertise, keep
        self._tokens, self._allow_loopback, self._clock, self._chance = tokens, allow_loopback_endpoints, clock, chance
        self._folder = None if data_dir is not None else tempfile.TemporaryDirectory(prefix="sandbox-apiserver-")
        self.data_dir = data_dir if data_dir is not None else Path(self._folder.name if self._folder else "")
        self._runner: web.ServerRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.handlers: Handlers | None = None
        self.url = ""
        self.ca_file = self.data_dir / "ca.crt"

    @property
    def cluster(self) -> Cluster:
        """The cluster behind the server, once it has started."""
        assert self.handlers is not None, "the server has not started"
        return self.handlers.cluster

    def set_fault(self, fault: Fault | None) -> None:
        """Let a function see every request first; what error it gives is the answer. For tests of clients."""
        assert self.handlers is not None, "the server has not started"
        self.handlers.fault = fault

    async def start(self) -> None:
        """Listen. Returns when requests are answered; `url` and `ca_file` are set then."""
        loop = asyncio.get_running_loop()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.ca_file, cert_file, key_file = certificates.make(self.data_dir, [self._host])
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(cert_file, key_file)

        def defer(action: Callable[[], None]) -> None:
            loop.call_soon(action)

        cluster = Cluster(self._tokens, defer, self._allow_loopback, self._clock, self._chance)
        snapshot = self.data_dir / _SNAPSHOT
        if self._keep and snapshot.exists():
            cluster.restore(orjson.loads(snapshot.read_bytes()))
        cluster.fill()
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, connect=10))
        self.handlers = Handlers(cluster, self._advertise, self._session, AuditLog(self.data_dir / AUDIT_LOG))
        server = web.Server(self.handlers, request_factory=_request, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=tls, backlog=512)
        await site.start()
        address = self._runner.addresses[0]
        self._port = address[1]
        self.handlers.address = self._advertise or f"{self._host}:{self._port}"
        self.url = f"https://{self._host}:{self._port}"

    async def stop(self) -> None:
        """End all watches, stop listening and, if asked to, keep the objects."""
        if self.handlers is not None:
            for watch in tuple(self.handlers.watches):
                watch.close()
            if self._keep:
                self.save()
        if self._runner is not None:
            await self._runner.cleanup()
        if self.handlers is not None:
            self.handlers.audit.close()
        if self._session is not None:
            await self._session.close()
        if self._folder is not None:
            self._folder.cleanup()

    def save(self) -> None:
        """Write all objects to the data folder, at once or not at all."""
        part = self.data_dir / f"{_SNAPSHOT}.part"
        part.write_bytes(orjson.dumps(self.cluster.store.snapshot()))
        part.replace(self.data_dir / _SNAPSHOT)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MOST_BODY_BYTES)
