"""The load: a raw asyncio client in a process of its own. ``python -m e2e.bench.runtime.client SPEC.json``

Every connection (every call slot, for gRPC) sends the next of the given requests as soon as it has the answer to the
last one. Prints one JSON object: requests, seconds, errors, the first error, latencies in seconds at some quantiles.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc
import uvloop

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_CHUNKED = 0
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass
class Tally:
    """What came back since the warm-up ended."""

    requests: list[bytes]
    latencies: list[float] = field(default_factory=list)
    errors: int = 0
    first_error: str = ""
    measuring: bool = False
    stopped: bool = False

    def answered(self, begun: float, problem: str) -> None:
        """Note one answer."""
        if problem:
            self.errors += 1
            self.first_error = self.first_error or problem
        if self.measuring and not self.stopped:
            self.latencies.append(time.perf_counter() - begun)


class HttpClient(asyncio.Protocol):
    """One keep-alive connection with one request at a time."""

    def __init__(self, tally: Tally, first: int) -> None:
        self._tally = tally
        self._next = first
        self._data = bytearray()
        self._wanted = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has hung up, which no server should do here."""
        if not self._tally.stopped:
            self._tally.answered(time.perf_counter(), "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._data += data
        if self._wanted < 0:
            end = self._data.find(_END)
            if end < 0:
                return
            length = _LENGTH.search(self._data, 0, end)
            # An answer without a length comes in chunks; no body here has the bytes of the last one in it.
            self._wanted = _CHUNKED if length is None else end + len(_END) + int(length[1])
        if len(self._data) >= self._wanted and (self._wanted != _CHUNKED or self._data.endswith(_LAST_CHUNK)):
            good = self._data[9:12] == b"200"
            self._tally.answered(self._begun, "" if good else bytes(self._data[:400]).decode("latin-1"))
            self._data.clear()
            self._wanted = -1
            if not self._tally.stopped:
                self._send()

    def _send(self) -> None:
        requests = self._tally.requests
        self._begun = time.perf_counter()
        self._transport.write(requests[self._next % len(requests)])
        self._next += 1


async def _call_slot(call: Any, tally: Tally, first: int) -> None:
    number = first
    while not tally.stopped:
        begun = time.perf_counter()
        try:
            await call(tally.requests[number % len(tally.requests)])
            tally.answered(begun, "")
        except grpc.aio.AioRpcError as error:
            tally.answered(begun, str(error.details()))
        number += 1


async def _measured(spec: dict[str, Any], requests: list[bytes]) -> dict[str, Any]:
    tally = Tally(requests)
    loop = asyncio.get_running_loop()
    slots = []
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{spec['port']}", _LIMITS) if spec["grpc"] else None
    for number in range(spec["connections"]):
        if channel is not None:
            slots.append(asyncio.create_task(_call_slot(channel.unary_unary(_INFER), tally, number)))
        else:
            make = lambda first=number: HttpClient(tally, first)  # noqa: E731
            await loop.create_connection(make, "127.0.0.1", spec["port"])
    await asyncio.sleep(spec["warmup"])
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    tally.measuring, begun = True, time.perf_counter()
    await asyncio.sleep(spec["seconds"])
    tally.stopped, seconds = True, time.perf_counter() - begun
    sys.stdout.write("end\n")
    sys.stdout.flush()
    await asyncio.gather(*slots)
    if channel is not None:
        await channel.close()
    ordered = sorted(tally.latencies)
    quantiles = {name: ordered[int(len(ordered) * share)] if ordered else 0.0 for name, share in _QUANTILES.items()}
    return {
        "requests": len(ordered),
        "seconds": seconds,
        "errors": tally.errors,
        "first_error": tally.first_error,
        **quantiles,
    }


_QUANTILES = {"p50": 0.5, "p99": 0.99}

if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    result = uvloop.run(_measured(given, [Path(name).read_bytes() for name in given["requests"]]))
    sys.stdout.write(json.dumps(result) + "\n")
