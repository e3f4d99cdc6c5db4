"""The node agent's HTTP server: container logs as a kubelet serves them, and what the sandbox alone has."""

from __future__ import annotations

import logging
import ssl
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from e2e.sandbox.controllers.times import from_text, now

from .certificate import self_signed
from .container import Container
from .logs import LogQuery, read_log
from .states import Running

if TYPE_CHECKING:
    from .agent import NodeAgent

log = logging.getLogger(__name__)


class LogServer:
    """Serves `/containerLogs`, `/healthz` and, for tests, `/sandbox/pods` and `/sandbox/settings`."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._runner: web.AppRunner | None = None

    async def start(self, addresses: dict[str, str]) -> dict[str, int]:
        """Listen on each node's address; returns the port of each node."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/sandbox/pods", self._pods)
        app.router.add_patch("/sandbox/settings", self._change_settings)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        secure = self._tls() if self._agent.settings.tls else None
        ports = {}
        for name, address in addresses.items():
            site = web.TCPSite(self._runner, address, 0, ssl_context=secure)
            await site.start()
            ports[name] = int(self._runner.addresses[-1][1])
        return ports

    def _tls(self) -> ssl.SSLContext:
        certificate, key = self_signed("sandbox-node-agent", self._agent.settings.data_dir / "tls")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        worker = self._agent.find(names["namespace"], names["pod"])
        container = next((c for c in worker.containers if c.name == names["container"]), None) if worker else None
        if container is None:
            return web.Response(status=404, text=f'container "{names["container"]}" not found in pod "{names["pod"]}"')
        previous = request.query.get("previous") == "true"
        path = container.log_path(previous=previous)
        if path is None:
            word = "previous terminated " if previous else ""
            text = f'{word}container "{container.name}" in pod "{names["pod"]}" not found'
            if not previous:
                text = f'container "{container.name}" in pod "{names["pod"]}" is waiting to start: {_why(container)}'
            return web.Response(status=400, text=text)
        return await _stream(request, container, path)

    async def _pods(self, request: web.Request) -> web.Response:
        """What runs here: addresses, process ids and simulated GPUs."""
        entries = [
            {
                "namespace": worker.context.pod["metadata"]["namespace"],
                "name": worker.context.pod["metadata"]["name"],
                "uid": worker.context.pod["metadata"]["uid"],
                "node": worker.context.pod["spec"]["nodeName"],
                "address": worker.context.address,
                "containers": [
                    {"name": c.name, "pid": c.pid, "gpus": list(worker.context.gpus.get(c.name, ()))}
                    for c in worker.containers
                ],
            }
            for worker in self._agent.workers()
        ]
        return web.json_response(entries)

    async def _change_settings(self, request: web.Request) -> web.Response:
        """Change `start_delay`, `restart_backoff` or `restart_backoff_cap`, in seconds."""
        changes = await request.json()
        allowed = {"start_delay", "restart_backoff", "restart_backoff_cap"}
        if not isinstance(changes, dict) or set(changes) - allowed:
            return web.Response(status=400, text=f"settings that may change: {', '.join(sorted(allowed))}")
        for name, value in changes.items():
            setattr(self._agent.settings, name, float(value))
        return web.json_response({name: getattr(self._agent.settings, name) for name in sorted(allowed)})


def _why(container: Container) -> str:
    return getattr(container.state, "reason", "ContainerCreating")


async def _stream(request: web.Request, container: Container, path: Path) -> web.StreamResponse:
    try:
        query = _query_of(request)
    except ValueError as error:
        return web.Response(status=400, text=str(error))
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    run = container.restarts

    def is_running() -> bool:
        return isinstance(container.state, Running) and container.restarts == run

    async for line in read_log(path, query, is_running):
        await response.write(line)
    await response.write_eof()
    return response


def _query_of(request: web.Request) -> LogQuery:
    values = request.query

    def number(name: str) -> int | None:
        return int(values[name]) if values.get(name) else None

    since = from_text(values["sinceTime"]) if values.get("sinceTime") else None
    seconds = number("sinceSeconds")
    if seconds is not None:
        since = now() - timedelta(seconds=seconds)
    return LogQuery(
        follow=values.get("follow") == "true",
        timestamps=values.get("timestamps") == "true",
        tail_lines=number("tailLines"),
        since=since,
        limit_bytes=number("limitBytes"),
    )
