"""LitServe with a model of the comparison. (It reads annotations as they are, so they must not be strings here.)"""

import sys
from typing import Any

import litserve
from fastapi import Request

from e2e.bench.runtime.served.models import Arrays, arrays_of, batch_rows, chosen, document_of, joined, rows_of


class Served(litserve.LitAPI):
    """The adapter: JSON in, arrays through, JSON out."""

    def setup(self, device: str) -> None:
        """Load the model."""
        self.run = chosen().load()

    def decode_request(self, request: Request) -> Arrays:
        """JSON to arrays."""
        return arrays_of(request)

    def batch(self, inputs: list[Arrays]) -> Arrays:
        """Put requests together."""
        return joined(inputs)

    def predict(self, inputs: Arrays) -> Arrays:
        """Run the model."""
        return self.run(inputs)

    def unbatch(self, output: Arrays) -> list[Arrays]:
        """Take a batch apart."""
        return rows_of(output)

    def encode_response(self, output: Arrays) -> dict[str, Any]:
        """Arrays to JSON."""
        return document_of(output)


if __name__ == "__main__":
    api = Served(max_batch_size=batch_rows(), batch_timeout=0.001 if batch_rows() > 1 else 0.0)
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False, log_level="warning"
    )
