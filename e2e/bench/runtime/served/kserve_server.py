"""KServe's Python server with a model of the comparison."""

from __future__ import annotations

import sys
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

from e2e.bench.runtime.served.models import chosen


class Served(Model):
    """The adapter."""

    def __init__(self) -> None:
        super().__init__("m")
        self.load()

    def load(self) -> bool:
        """Load the model."""
        self.served = chosen()
        self.run = self.served.load()
        self.ready = True
        return True

    async def predict(self, payload: InferRequest, headers: Any = None, response_headers: Any = None) -> InferResponse:
        """Run the model."""
        outputs = self.run({one.name: one.as_numpy() for one in payload.inputs})
        datatypes = {one.name: one.datatype for one in self.served.outputs}
        encoded = []
        for name, array in outputs.items():
            output = InferOutput(name=name, shape=list(array.shape), datatype=datatypes[name])
            output.set_data_from_numpy(array, binary_data=False)
            encoded.append(output)
        return InferResponse(response_id=payload.id or "1", model_name="m", infer_outputs=encoded)


if __name__ == "__main__":
    server = ModelServer(
        http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), enable_grpc=True, workers=1, enable_docs_url=False
    )
    server.start([Served()])
