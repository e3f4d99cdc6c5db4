"""A real Prometheus process that scrapes the sandbox."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import aiohttp

from e2e.sandbox.binaries import prometheus_path
from e2e.sandbox.mesh.child import Child, ChildEndedError
from e2e.sandbox.mesh.reflector import ApiAccess
from e2e.sandbox.ports import free_port
from e2e.sandbox.telemetry.discovery import PodDiscovery, write_targets
from e2e.sandbox.telemetry.scraping import ScrapeTarget, prometheus_config

HOST = "127.0.0.1"
START_SECONDS = 60.0
START_ATTEMPTS = 3
RETENTION = "12h"


class PrometheusFailedError(Exception):
    """Prometheus did not come up; the message ends with its last log lines."""


class Prometheus:
    """Scrapes every annotated pod that the API server knows, and `extra_targets`, each `scrape_interval` seconds."""

    def __init__(
        self,
        api_url: str,
        token: str,
        ca_file: Path | None,
        *,
        work_dir: Path,
        scrape_interval: float = 1.0,
        extra_targets: Sequence[ScrapeTarget] = (),
        listen_port: int = 0,
    ) -> None:
        self._work_dir = work_dir
        self._discovery = PodDiscovery(ApiAccess(api_url, token, ca_file), work_dir / "pods.json")
        self._scrape_interval = scrape_interval
        self._targets = list(extra_targets)
        self._listen_port = listen_port
        self._child: Child | None = None
        self.url = ""

    async def start(self) -> Self:
        """Start Prometheus and return when it answers queries.

        Raises PrometheusFailedError when it does not come up.
        """
        self._work_dir.mkdir(parents=True, exist_ok=True)
        await self._discovery.start()
        config = self._write_configuration()
        attempts = 1 if self._listen_port else START_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self._listen_port or free_port(HOST)
            child = Child(self._command(config, port), self._work_dir / "prometheus.log")
            await child.start()
            self._child = child
            self.url = f"http://{HOST}:{port}"
            try:
                await self._ready(child)
            except (ChildEndedError, TimeoutError) as error:
                # Somebody may have taken the free port in the meantime.
                if attempt == attempts or "address already in use" not in child.last_words():
                    await self.stop()
                    raise PrometheusFailedError(f"Prometheus did not start: {child.last_words()}") from error
            else:
                break
        return self

    async def stop(self) -> None:
        """End Prometheus; its data stays in the work folder."""
        await self._discovery.stop()
        if self._child is not None:
            await self._child.stop()
            self._child = None

    def add_target(self, target: ScrapeTarget) -> None:
        """Scrape one thing more; Prometheus notices by itself within a moment."""
        self._targets.append(target)
        self._write_targets()

    @property
    def _targets_file(self) -> Path:
        return self._work_dir / "targets.json"

    def _write_targets(self) -> None:
        write_targets(self._targets_file, [target.discovered() for target in self._targets])

    def _write_configuration(self) -> Path:
        self._write_targets()
        config = self._work_dir / "prometheus.yml"
        files = ((self._work_dir / "pods.json").resolve(), self._targets_file.resolve())
        # JSON is YAML.
        config.write_text(json.dumps(prometheus_config(*files, self._scrape_interval), indent=1))
        return config

    def _command(self, config: Path, port: int) -> list[str]:
        return [
            str(prometheus_path()),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._work_dir / 'data'}",
            f"--storage.tsdb.retention.time={RETENTION}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=warn",
        ]

    async def _ready(self, child: Child) -> None:
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession(self.url) as session:
            while True:
                child.check()
                try:
                    async with session.get("/-/ready") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientConnectionError:
                    pass
                await asyncio.sleep(0.05)
