"""MLServer with a model of the comparison."""

from __future__ import annotations

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from e2e.bench.runtime.served.models import chosen


class Runtime(MLModel):
    """The adapter."""

    async def load(self) -> bool:
        """Load the model."""
        self.run = chosen().load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run the model."""
        outputs = self.run({one.name: NumpyCodec.decode_input(one) for one in payload.inputs})
        encoded = [NumpyCodec.encode_output(name, array) for name, array in outputs.items()]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=encoded)
