"""The operator as a process that tests may kill, restart and ask for its metrics."""

import asyncio
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from e2e.demo.story import start_operator
from e2e.sandbox.children import Child
from e2e.sandbox.cluster import Cluster, Sandbox
from e2e.sandbox.ports import free_port
from tests.integration.role import LEASE_NAMESPACE, OPERATOR

READY_SECONDS = 180.0
_SAMPLE = re.compile(r'slipway_operator_api_requests_total\{code="(\d+)",method="(\w+)",resource="(\w+)"\} (\S+)')


@dataclass
class Operator:
    """``slipway run`` against a cluster, with the rights of :mod:`tests.integration.role` where users can be made."""

    cluster: Cluster
    folder: Path
    flags: tuple[str, ...] = ()
    child: Child | None = None
    port: int = field(default_factory=free_port)
    module: str = "slipway.cli"
    """What is run; it takes the flags of ``slipway run``."""

    async def start(self, *flags: str) -> None:
        """Start it with these flags beside the usual ones and wait until it says that it is ready."""
        self.flags = flags
        self.child = await start_operator(
            self.cluster,
            self.folder,
            *("--http-port", str(self.port), "--http-host", "127.0.0.1", "--lease-namespace", LEASE_NAMESPACE),
            *flags,
            kubeconfig=self.cluster.kubeconfig_for(OPERATOR) if isinstance(self.cluster, Sandbox) else None,
            module=self.module,
        )
        self.child.drain()
        async with asyncio.timeout(READY_SECONDS):
            while not await self._ready():
                assert self.child.process.returncode is None, self.child.tail()
                await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self._url("readyz")) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}/{path}"

    async def kill(self) -> None:
        """kill -9: nothing is finished, the lease stays held."""
        assert self.child is not None
        self.child.process.send_signal(signal.SIGKILL)
        await self.child.process.wait()

    async def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        if self.child is not None:
            await self.child.stop()

    async def restart(self, *flags: str) -> None:
        """Stop it in order and start it with other flags."""
        await self.stop()
        await self.start(*flags)

    async def writes(self) -> int:
        """Requests to the API server so far that write something, the lease's renewals apart."""
        async with aiohttp.ClientSession() as session, session.get(self._url("metrics")) as response:
            text = await response.text()
        samples = _SAMPLE.findall(text)
        assert samples, text[:2000]
        return sum(
            int(float(count)) for _, method, resource, count in samples if method != "GET" and resource != "leases"
        )

    def log(self) -> str:
        """Everything that it and those before it logged."""
        return (self.folder / "logs" / "operator.log").read_text()
