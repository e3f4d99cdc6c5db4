"""A model whose answers come in parts, and what the tests of streams ask of a server."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from slipway_runtime.models.model import OutOfMemory
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec

from tests.runtime.harness import PATIENCE, ServerThread

MODEL = "my model"
GENERATE, STREAM = "/v2/models/my%20model/generate", "/v2/models/my%20model/generate_stream"
FAILING, SHORT_OF_MEMORY = 666, 667


class CountingModel:
    """A number comes back as so many parts, 0 and up. Every part from ``free`` on waits for a permission."""

    signature = Signature(
        (TensorSpec("x", Datatype.INT32, (-1,)),), (TensorSpec("y", Datatype.INT32, (-1,)),), False, streams=True
    )
    platform = "test"
    on_accelerator = False

    def __init__(self, free: int = 1_000_000) -> None:
        self.free = free
        self.permits = threading.Semaphore(0)
        self.made = 0
        self.closed: queue.Queue[int] = queue.Queue()

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return next(self.stream(inputs, {}))

    def stream(self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Iterator[tuple[Tensor, ...]]:
        count = int(inputs[0].array[0])
        number = 0
        try:
            for number in range(count):
                if number >= self.free:
                    assert self.permits.acquire(timeout=PATIENCE)
                if number == 1 and count in (FAILING, SHORT_OF_MEMORY):
                    raise ValueError("secret") if count == FAILING else OutOfMemory
                self.made += 1
                yield (Tensor("y", Datatype.INT32, np.array([number], np.int32)),)
        finally:
            self.closed.put(number)


def sent(count: int) -> triton.InferInput:
    tensor = triton.InferInput("x", [1], "INT32")
    tensor.set_data_from_numpy(np.array([count], np.int32))
    return tensor


def events(body: bytes) -> list[Any]:
    parts = body.decode().split("\n\n")
    assert parts[-1] == "" and all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def codes(server: ServerThread) -> dict[str, float]:
    start = "slipway_requests_total{code="
    return {
        name.split('"')[1]: value
        for name, value in server.metrics().items()
        if name.startswith(start) and 'shadow="false"' in name and value
    }


def body(count: int, **more: Any) -> bytes:
    return json.dumps({"x": count, **more}).encode()


def parked(server: ServerThread) -> bool:
    """Whether a stream waits for its client."""
    runner = server.batcher.streams
    assert runner is not None
    return any(not stream.room and not stream.running for stream in runner._active)
