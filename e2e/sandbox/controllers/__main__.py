"""`python -m e2e.sandbox.controllers --kubeconfig FILE`: the controllers as a process of their own."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path

from .client import Access
from .suite import Controllers


async def _run(access: Access) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Controllers(access):
        print('{"ready": true}', flush=True)
        await stop.wait()


def main() -> None:
    """Run until SIGTERM; prints one JSON line when all caches are filled."""
    parser = argparse.ArgumentParser(prog="python -m e2e.sandbox.controllers", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args()
    logging.basicConfig(level=options.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_run(Access.from_kubeconfig(options.kubeconfig)))


if __name__ == "__main__":
    main()
