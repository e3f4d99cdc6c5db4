"""What the servers are asked to do: models, concurrency, wire format, and the requests themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from e2e.bench.runtime.served.models import Arrays, Run


class Wire(Enum):
    """How tensors travel."""

    JSON = "JSON"
    BINARY = "binary HTTP"
    GRPC = "gRPC"


@dataclass(frozen=True)
class Workload:
    """A model asked over a wire by so many clients at once. ``batch``: rows the servers may put together."""

    name: str
    title: str
    model: str
    connections: int
    wire: Wire = Wire.JSON
    batch: int = 1


WORKLOADS = (
    Workload("identity-1", "No-op on [1,16] FP32, JSON, 1 client", "identity", 1),
    Workload("identity-16", "No-op on [1,16] FP32, JSON, 16 clients", "identity", 16),
    Workload("identity-64", "No-op on [1,16] FP32, JSON, 64 clients", "identity", 64),
    Workload("perceptron-64", "Perceptron 16-256-256-4, JSON, 64 clients, batches to 32", "perceptron", 64, batch=32),
    Workload("picture-http", "602 KB FP32 [1,3,224,224] by binary HTTP, 1 client", "picture", 1, Wire.BINARY),
    Workload("picture-grpc", "602 KB FP32 [1,3,224,224] by gRPC, 1 client", "picture", 1, Wire.GRPC),
    Workload("sentences-8", "MiniLM sentence model, 16 tokens, JSON, 8 clients, batches to 8", "sentences", 8, batch=8),
    Workload("voice-4", "silero-vad, 4 streams of chunks with their state, JSON", "voice", 4),
)
_CHUNKS = 16
_TOKENS = 16


def groups() -> dict[tuple[str, int], list[Workload]]:
    """The workloads that one start of a server can do, by model and batch."""
    found: dict[tuple[str, int], list[Workload]] = {}
    for workload in WORKLOADS:
        found.setdefault((workload.model, workload.batch), []).append(workload)
    return found


def requests_of(model: str, run: Run) -> list[tuple[Arrays, Arrays]]:
    """Requests for a model with the answers that ``run``, the model itself, gives; clients send them in turn."""
    random = np.random.default_rng(7)
    if model == "voice":
        return _stream(run)
    if model == "sentences":
        ids = [random.integers(1000, 20000, (1, _TOKENS)) for _ in range(8)]
        mask = np.ones((1, _TOKENS), dtype=np.int64)
        inputs: list[Arrays] = [{"input_ids": one, "attention_mask": mask} for one in ids]
    elif model == "picture":
        inputs = [{"x": random.standard_normal((1, 3, 224, 224)).astype(np.float32)}]
    else:
        inputs = [{"x": random.standard_normal((1, 16)).astype(np.float32)} for _ in range(8)]
    return [(one, run(one)) for one in inputs]


def _stream(run: Run) -> list[tuple[Arrays, Arrays]]:
    """Chunks of a sound, each with the state that the chunk before it left."""
    seconds = np.arange(_CHUNKS * 512) / 16000
    sound = (0.3 * np.sin(2 * np.pi * 220 * seconds) * (seconds % 0.2 > 0.1)).astype(np.float32)
    state: Any = np.zeros((2, 1, 128), np.float32)
    before = np.zeros((1, 64), np.float32)
    exchanges = []
    for chunk in sound.reshape(_CHUNKS, 1, 512):
        inputs = {"input": np.concatenate([before, chunk], axis=1), "state": state}
        outputs = run(inputs)
        exchanges.append((inputs, outputs))
        state, before = outputs["stateN"], chunk[:, -64:]
    return exchanges
