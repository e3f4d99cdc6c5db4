"""BentoML with a model of the comparison.

Its batches need one array as the only argument; models with several inputs are served one request at a time.
"""

from __future__ import annotations

from typing import Any

import bentoml
import numpy as np

from e2e.bench.runtime.served.models import arrays_of, batch_rows, chosen, document_of


@bentoml.service(workers=1, traffic={"timeout": 60})
class Served:
    """The adapter: ``/infer`` takes the JSON of the protocol, ``/rows`` one array of rows, in batches."""

    def __init__(self) -> None:
        self.run = chosen().load()

    @bentoml.api(route="/infer")
    def infer(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """One request."""
        return document_of(self.run(arrays_of({"inputs": inputs})))

    @bentoml.api(route="/rows", batchable=True, batch_dim=0, max_batch_size=max(batch_rows(), 2), max_latency_ms=1000)
    def rows(self, x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Rows of several requests."""
        result: np.ndarray[Any, np.dtype[np.float32]] = self.run({"x": x.astype(np.float32)})["y"]
        return result
