"""No server at all: a protocol on uvloop and httptools that reads the JSON, runs the model, writes the JSON.

It checks nothing, queues nothing, counts nothing: what Python can do at most on one core.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import numpy as np
import orjson
import uvloop

from e2e.bench.runtime.served.models import NUMPY, Run, chosen


class Bare(asyncio.Protocol):
    """One connection."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._datatypes = {one.name: one.datatype for one in chosen().outputs}
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self._transport = cast(asyncio.Transport, transport)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """A part of a body came."""
        self._body += body

    def on_message_complete(self) -> None:
        """A request is complete: answer it."""
        document = orjson.loads(self._body)
        self._body = b""
        inputs = {
            one["name"]: np.array(one["data"], dtype=NUMPY[one["datatype"]]).reshape(one["shape"])
            for one in document["inputs"]
        }
        outputs = [
            {"name": name, "datatype": self._datatypes[name], "shape": array.shape, "data": array.reshape(-1)}
            for name, array in self._run(inputs).items()
        ]
        text = orjson.dumps({"model_name": "m", "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
        self._transport.writelines([head, text])


async def _serve(port: int) -> None:
    run = chosen().load()
    server = await asyncio.get_running_loop().create_server(lambda: Bare(run), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
