"""`python -m e2e.sandbox.node --kubeconfig FILE --data-dir DIR`: the node agent as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
from pathlib import Path

from e2e.sandbox.controllers.client import Access

from .agent import NodeAgent
from .images import ImageTable
from .settings import AgentSettings


async def _run(access: Access, settings: AgentSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with NodeAgent(access, settings):
        print(json.dumps({"ready": True, "pod_range": settings.pod_range}), flush=True)
        await stop.wait()


def main() -> None:
    """Run until SIGTERM; prints one JSON line when the nodes are ready."""
    parser = argparse.ArgumentParser(prog="python -m e2e.sandbox.node", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--pod-range", default="127.20.0.0/16", help="IPv4 range of pod addresses")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=8, help="simulated GPUs on each node")
    parser.add_argument("--start-delay", type=float, default=0.0, help="simulated cold start in seconds")
    parser.add_argument("--restart-backoff", type=float, default=2.0, help="first back-off in seconds")
    parser.add_argument("--restart-backoff-cap", type=float, default=60.0, help="longest back-off in seconds")
    parser.add_argument("--images", type=Path, help="YAML file with more images")
    parser.add_argument("--tokens", type=Path, help="static tokens, for pods that act as a service account")
    parser.add_argument("--tls", action="store_true", help="serve logs by HTTPS")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = AgentSettings(
        data_dir=options.data_dir,
        pod_range=options.pod_range,
        nodes=options.nodes,
        gpus=options.gpus,
        images=ImageTable.from_file(options.images) if options.images else ImageTable(),
        start_delay=options.start_delay,
        restart_backoff=options.restart_backoff,
        restart_backoff_cap=options.restart_backoff_cap,
        tokens_file=options.tokens,
        tls=options.tls,
    )
    asyncio.run(_run(Access.from_kubeconfig(options.kubeconfig), settings))


if __name__ == "__main__":
    main()
