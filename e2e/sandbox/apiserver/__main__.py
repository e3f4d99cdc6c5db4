"""`python -m e2e.sandbox.apiserver`: run the API server until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from .access import read_tokens
from .server import ApiServer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.sandbox.apiserver", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument("--tokens", type=Path, required=True, help="file of token,user,uid,groups lines")
    parser.add_argument("--data-dir", type=Path, required=True, help="folder for certificates and kept objects")
    parser.add_argument("--port-file", type=Path, help="file to write the port to when ready")
    parser.add_argument(
        "--advertise-address", default="", help="host:port that discovery gives instead of the real one"
    )
    parser.add_argument("--keep", action="store_true", help="keep objects over a restart")
    parser.add_argument(
        "--refuse-loopback-endpoints", action="store_true", help="refuse 127.x endpoints, as a real server does"
    )
    return parser.parse_args()


async def _run(arguments: argparse.Namespace) -> None:
    server = ApiServer(
        tokens=read_tokens(arguments.tokens),
        host=arguments.host,
        port=arguments.port,
        data_dir=arguments.data_dir,
        advertise=arguments.advertise_address,
        allow_loopback_endpoints=not arguments.refuse_loopback_endpoints,
        keep=arguments.keep,
    )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await server.start()
    if arguments.port_file is not None:
        part = arguments.port_file.with_name(f"{arguments.port_file.name}.part")
        part.write_text(server.url.rpartition(":")[2])
        part.replace(arguments.port_file)
    sys.stdout.write(json.dumps({"url": server.url, "ca": str(server.ca_file)}) + "\n")
    sys.stdout.flush()
    await stopped.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(_run(_arguments()))
