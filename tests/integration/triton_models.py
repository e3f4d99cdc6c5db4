"""Models for Triton's Python backend, with the tensors of the other tests' models: 64 numbers to ten logits."""

import json
from pathlib import Path

import numpy as np
from slipway_runtime.artefact.digest import digest_of

from tests.integration.models import SCANS, Model

CONFIG = """
backend: "python"
max_batch_size: 32
input [{ name: "pixels" data_type: TYPE_FP32 dims: [64] }]
output [{ name: "logits" data_type: TYPE_FP32 dims: [10] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
CODE = """
import numpy as np
import triton_python_backend_utils as backend

WEIGHTS = np.random.default_rng({seed}).random((64, 10), dtype=np.float32)
FAILS = {fails}


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        pixels = backend.get_input_tensor_by_name(request, "pixels").as_numpy()
        if FAILS and pixels[0, 0] > 0.5:
            return backend.InferenceResponse(error=backend.TritonError("broken on purpose"))
        return backend.InferenceResponse([backend.Tensor("logits", pixels @ WEIGHTS)])
"""


def write(folder: Path, *, seed: int, fails: bool = False) -> Model:
    """A model's folder as Triton wants it."""
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.py").write_text(CODE.format(seed=seed, fails=fails))
    return Model(folder, digest_of(folder))


def goldens(seed: int) -> str:
    """Two requests with the answers of the model of that seed."""
    weights = np.random.default_rng(seed).random((64, 10), dtype=np.float32)
    entries = []
    for scan in SCANS[:2]:
        pixels = {"name": "pixels", "datatype": "FP32", "shape": [1, 64], "data": scan.tolist()}
        logits = {"name": "logits", "datatype": "FP32", "shape": [1, 10], "data": (scan @ weights).tolist()}
        entries.append({"request": {"inputs": [pixels]}, "response": {"outputs": [logits]}})
    return json.dumps(entries)
