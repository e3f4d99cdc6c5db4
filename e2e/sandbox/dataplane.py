"""Mesh and telemetry in a process of their own: `python -m e2e.sandbox.dataplane ...`.

Prints one JSON line with the URLs when everything is ready. `PATCH {control_url}/settings` with
`{"propagation_delay": SECONDS}` changes how long Envoy lags behind the API server.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import math
import signal
from pathlib import Path

from aiohttp import web

from e2e.sandbox.controllers.client import Access
from e2e.sandbox.mesh import Mesh
from e2e.sandbox.telemetry import Prometheus, SimulatedDcgmExporter, dcgm_target, envoy_target

HOST = "127.0.0.1"


class Control:
    """A small HTTP server through which tests change the mesh's settings."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        app = web.Application()
        app.router.add_patch("/settings", self._change)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)

    async def start(self) -> str:
        """Listen on a free port; returns the URL."""
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        return f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _change(self, request: web.Request) -> web.Response:
        changes = await request.json()
        if not isinstance(changes, dict) or set(changes) != {"propagation_delay"}:
            return web.Response(status=400, text="only propagation_delay can be changed")
        delay = changes["propagation_delay"]
        self._mesh.propagation_delay = math.inf if delay is None else float(delay)
        return web.json_response(changes)


async def _run(options: argparse.Namespace) -> None:
    access = Access.from_kubeconfig(options.kubeconfig)
    token, ca_file = access.token or "", Path(access.ca_file) if access.ca_file else None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    folder: Path = options.work_dir
    async with contextlib.AsyncExitStack() as stack:
        mesh = Mesh(
            access.url,
            token,
            ca_file,
            work_dir=folder / "mesh",
            listen_port=options.listen_port,
            propagation_delay=options.propagation_delay,
        )
        stack.push_async_callback(mesh.stop)
        await mesh.start()
        control = Control(mesh)
        stack.push_async_callback(control.stop)
        answer = {
            "gateway_url": mesh.url,
            "mesh_admin_url": mesh.admin_url,
            "control_url": await control.start(),
            "prometheus_url": "",
            "dcgm_url": "",
        }
        if options.telemetry:
            answer |= await _start_telemetry(stack, access, mesh, folder, options.scrape_interval)
        print(json.dumps(answer), flush=True)
        await stop.wait()


async def _start_telemetry(
    stack: contextlib.AsyncExitStack, access: Access, mesh: Mesh, folder: Path, scrape_interval: float
) -> dict[str, str]:
    token, ca_file = access.token or "", Path(access.ca_file) if access.ca_file else None
    exporter = SimulatedDcgmExporter(access.url, token, ca_file, interval=scrape_interval)
    stack.push_async_callback(exporter.stop)
    await exporter.start()
    prometheus = Prometheus(
        access.url,
        token,
        ca_file,
        work_dir=folder / "prometheus",
        scrape_interval=scrape_interval,
        extra_targets=(dcgm_target(exporter.url), envoy_target(mesh.envoy_admin_url)),
    )
    stack.push_async_callback(prometheus.stop)
    await prometheus.start()
    return {"prometheus_url": prometheus.url, "dcgm_url": exporter.url}


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m e2e.sandbox.dataplane", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--listen-port", type=int, default=0, help="port of the gateway; 0 is a free one")
    parser.add_argument("--propagation-delay", type=float, default=0.1, help="seconds")
    parser.add_argument("--scrape-interval", type=float, default=1.0, help="seconds")
    parser.add_argument("--no-telemetry", dest="telemetry", action="store_false")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_run(options))


if __name__ == "__main__":
    main()
