"""Ray Serve with a model of the comparison."""

from __future__ import annotations

import signal
import sys
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from e2e.bench.runtime.served.models import arrays_of, batch_rows, chosen, document_of, joined, rows_of


@serve.deployment(num_replicas=1, max_ongoing_requests=256, ray_actor_options={"num_cpus": 0})
class Served:
    """The adapter."""

    def __init__(self) -> None:
        self.run = chosen().load()
        self.batches = batch_rows() > 1

    async def __call__(self, request: Request) -> dict[str, Any]:
        """One request."""
        inputs = arrays_of(await request.json())
        return document_of(await self.together(inputs) if self.batches else self.run(inputs))

    @serve.batch(max_batch_size=max(batch_rows(), 2), batch_wait_timeout_s=0.001)
    async def together(self, inputs: list[Any]) -> list[Any]:
        """Several requests."""
        return rows_of(self.run(joined(inputs)))


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(Served.bind())  # type: ignore[attr-defined]
    signal.pause()
