"""Triton's Python backend with a model of the comparison; the file of a model repository imports it."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as backend

from e2e.bench.runtime.served.models import batch_rows, chosen, joined, rows_of


class TritonPythonModel:
    """The adapter."""

    def initialize(self, args: Any) -> None:
        """Load the model."""
        self.served = chosen()
        self.run = self.served.load()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run the model once for all requests where it may be."""
        inputs = [
            {one.name: backend.get_input_tensor_by_name(request, one.name).as_numpy() for one in self.served.inputs}
            for request in requests
        ]
        if batch_rows() > 1 and len(inputs) > 1:
            outputs = rows_of(self.run(joined(inputs)))
        else:
            outputs = [self.run(one) for one in inputs]
        return [
            backend.InferenceResponse([backend.Tensor(name, array) for name, array in one.items()]) for one in outputs
        ]
