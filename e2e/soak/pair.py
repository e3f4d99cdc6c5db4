"""Two operators that compete for one lease, each started again when it ends, as by a kubelet."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from e2e.bench.valve import Valve
from e2e.demo.story import start_operator
from e2e.sandbox.children import Child
from e2e.sandbox.cluster import Sandbox, User
from tests.integration.role import LEASE_NAMESPACE

__all__ = ["USERS", "Pair", "Sample"]

USERS = tuple(User.service_account("slipway-system", name) for name in ("one", "two"))
RESTART = 1.0
"""Seconds until a process that ended is started again."""
BETWEEN = 2.0
"""Seconds between two samples."""


@dataclass(frozen=True)
class Sample:
    """A process at one moment."""

    age: float
    """Seconds since it was started."""
    megabytes: float
    """Resident."""
    files: int
    threads: int


@dataclass
class Pair:
    """Both, each behind a valve of its own before the API server."""

    sandbox: Sandbox
    folder: Path
    children: dict[str, Child] = field(default_factory=dict)
    valves: dict[str, Valve] = field(default_factory=dict)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    """By process."""
    ends: list[tuple[str, int]] = field(default_factory=list)
    """Processes that ended, and how."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Pair"]:
        """Both run while the block does."""
        names = [user.name.rpartition(":")[2] for user in USERS]
        for name, user in zip(names, USERS, strict=True):
            self.valves[name] = Valve(self.sandbox.api_url)
            await self.valves[name].open()
            self._write_config(name, user)
        tasks = [asyncio.create_task(self._supervise(name)) for name in names]
        tasks.append(asyncio.create_task(self._sample()))
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.gather(*(child.stop() for child in self.children.values()))
            for valve in self.valves.values():
                await valve.shut()

    def _config(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def _write_config(self, name: str, user: User) -> None:
        config = yaml.safe_load(self.sandbox.kubeconfig_for(user.name).read_text())
        for entry in config["clusters"]:
            entry["cluster"]["server"] = self.valves[name].url.replace("http://", "https://")
        self._config(name).write_text(yaml.safe_dump(config))

    async def _supervise(self, name: str) -> None:
        while True:
            child = await start_operator(
                self.sandbox,
                self.folder,
                *("--lease-namespace", LEASE_NAMESPACE, "--resync", "30"),
                name=name,
                kubeconfig=self._config(name),
            )
            self.children[name] = child
            child.drain()
            self.ends.append((name, await child.process.wait()))
            await asyncio.sleep(RESTART)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        begun: dict[int, float] = {}
        while True:
            for child in self.children.values():
                pid = child.process.pid
                with contextlib.suppress(OSError, KeyError):
                    age = loop.time() - begun.setdefault(pid, loop.time())
                    sample = _sample_of(pid, age)
                    self.samples.setdefault(pid, []).append(sample)
            await asyncio.sleep(BETWEEN)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        child = self.children.get(name)
        if child is not None and child.process.returncode is None:
            child.process.send_signal(number)

    @property
    def unexpected(self) -> list[tuple[str, int]]:
        """Ends by anything but a signal, an order, or a lease or API server that was lost."""
        return [(name, code) for name, code in self.ends if code not in (0, 1, -signal.SIGKILL, -signal.SIGTERM)]


def _sample_of(pid: int, age: float) -> Sample:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(age, int(fields["VmRSS"].split()[0]) / 1024, files, int(fields["Threads"]))
