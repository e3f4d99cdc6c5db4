"""A model server inside the test process (own thread, own event loop), and one as a process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from slipway_runtime.http.connection import Bounds, Handler
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.http.listener import HttpListener
from slipway_runtime.http.observing import ObservedHandler
from slipway_runtime.http.routes import Router
from slipway_runtime.metrics.admission import tenant_counters
from slipway_runtime.metrics.sheet import Sheet
from slipway_runtime.repository.place import Place
from slipway_runtime.repository.repository import Repository
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.listener import RpcListener
from slipway_runtime.rpc.service import RpcService
from slipway_runtime.serving.batcher import Batcher
from slipway_runtime.serving.budget import ByteBudget
from slipway_runtime.serving.caching import caching
from slipway_runtime.serving.cost import CostModel
from slipway_runtime.serving.executor import Executor, Instance
from slipway_runtime.serving.service import Phase
from slipway_runtime.serving.tenants import TenantRules, Tenants
from slipway_runtime.settings import Limits
from slipway_runtime.shadow.config import ShadowFile
from slipway_runtime.shadow.repeater import Repeater
from slipway_runtime.telemetry.observer import Observer
from slipway_runtime.telemetry.switches import Switches
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor, TensorSpec

from e2e.sandbox.ports import free_port

PATIENCE = 60.0
"""Seconds; long, as a machine may be busy. What is waited for comes in a moment."""
ROOT = Path(__file__).parents[2]


def await_condition(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError("the condition did not come true")
        time.sleep(0.005)


@dataclass
class FunctionModel:
    """A model made of a function of tensors."""

    signature: Signature
    function: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
    platform: str = "test"
    on_accelerator: bool = False

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self.function(inputs)


def row_signature(datatype: Datatype = Datatype.FP32, width: int = -1) -> Signature:
    """One input ``x`` and one output ``y`` of rows."""
    return Signature((TensorSpec("x", datatype, (-1, width)),), (TensorSpec("y", datatype, (-1, width)),), True)


def echo(inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """x comes back as y."""
    return tuple(Tensor("y", one.datatype, one.array) for one in inputs)


def echo_model(datatype: Datatype, rank: int = 2, batched: bool = False) -> FunctionModel:
    shape = (-1,) * rank
    signature = Signature((TensorSpec("x", datatype, shape),), (TensorSpec("y", datatype, shape),), batched)
    return FunctionModel(signature, echo)


@dataclass
class GatedModel:
    """Rows come back times two; every execution waits for a permission and notes the rows it had.

    The value 666 in a row makes the whole execution fail.
    """

    signature: Signature = field(default_factory=row_signature)
    platform: str = "test"
    on_accelerator: bool = True  # never on the event loop: it blocks
    started: queue.Queue[int] = field(default_factory=queue.Queue)
    permits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    executions: list[int] = field(default_factory=list)

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        array = inputs[0].array
        self.started.put(len(array))
        assert self.permits.acquire(timeout=PATIENCE)
        self.executions.append(len(array))
        if (array == 666).any():
            raise ValueError("row 666")
        return (Tensor("y", inputs[0].datatype, array * 2),)

    def permit(self, count: int = 1000) -> None:
        for _ in range(count):
            self.permits.release()


class ServerThread:
    """The whole data plane around a given model."""

    def __init__(
        self,
        model: Any,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        start: bool = True,
        shadow_file: Path | None = None,
        revision: str = "rev-1",
        tenants: TenantRules | None = None,
        observe: Callable[[Sheet], tuple[Switches, Observer]] | None = None,
    ):
        self.observe = observe
        self.tenants = tenants
        self.model = model
        self.limits = limits or Limits()
        memory = ByteBudget(self.limits.max_inflight_bytes)
        self.bounds = bounds or Bounds(max_body=self.limits.max_request_bytes, memory=memory)
        self.port = 0
        self.shadow_file = shadow_file
        self.revision = revision
        self._start = start
        self._opened = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)

    def __enter__(self) -> ServerThread:
        self._thread.start()
        assert self._opened.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.on_loop(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.lost: list[BaseException] = []
        self.executor = Executor(self.loop)
        self.repository = Repository()
        self.service = self.repository.accounts.service("my model", "v1", self.revision)
        self.repository.add(Place(self.service))
        repeater = None
        if self.shadow_file:
            # A request without an id lies at the far end of the draws: with a share of 100 it goes to both.
            repeater = Repeater(self.service, ShadowFile(self.shadow_file), draw=lambda: 0.99)
        tenants = None
        if self.tenants is not None:
            tenants = Tenants(self.tenants, partial(tenant_counters, self.repository.accounts.sheet))
        memory = self.bounds.memory
        endpoint = InferenceEndpoint(self.limits.max_request_bytes, repeater, tenants, memory)
        switches, observer = self.observe(self.repository.accounts.sheet) if self.observe else (Switches(), None)
        self.observer = observer
        router: Handler = Router(self.repository, endpoint, switches=switches)
        self.listener = HttpListener(router if observer is None else ObservedHandler(router, observer), self.bounds)
        self.port = await self.listener.open("127.0.0.1", 0)
        inference = RpcInference(self.repository, repeater, tenants, memory)
        calls = RpcService(self.repository, inference, switches=switches)
        rpc = RpcListener(calls, self.limits.max_request_bytes, observer=observer, max_inflight_bytes=memory.limit)
        self.grpc_port = await rpc.open("127.0.0.1", 0)
        if self._start:
            self.start_model()
        self._opened.set()
        await self._stop.wait()
        self.listener.close()
        await rpc.close()
        endpoint.close()
        if repeater is not None:
            await repeater.close()
        self.executor.stop()
        if observer is not None:
            observer.close(PATIENCE)
            observer.publish()

    def start_model(self) -> None:
        cost = CostModel(inline_allowed=not self.model.on_accelerator)
        rows = self.limits.max_batch_size
        instances = [Instance(self.model, self.executor)]
        batcher = Batcher(
            instances,
            self.limits,
            self.service.metrics,
            self.service.statistics,
            self.lost.append,
            rows,
            cost,
        )
        self.batcher = batcher
        self.served: Any = caching(
            batcher, self.limits, "my model/v1/digest", self.service.metrics, self.service.statistics
        )
        self.service.start(instances, self.served, rows, self.limits.max_delay)

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the server's event loop and give its result."""
        done: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()

        def run() -> None:
            try:
                done.put((work(), None))
            except BaseException as error:
                done.put((None, error))

        self.loop.call_soon_threadsafe(run)
        result, error = done.get(timeout=PATIENCE)
        if error is not None:
            raise error
        return result

    def enter(self, phase: Phase) -> None:
        self.on_loop(lambda: self.service.enter(phase))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def metrics(self) -> dict[str, float]:
        return parse_metrics(fetch(self.address, "GET", "/metrics")[1].decode())

    def infer(self, array: Any, **parameters: Any) -> tuple[int, Any]:
        """Status and JSON of a JSON request for the input ``x``."""
        status, body, _ = fetch(self.address, "POST", INFER, json_request(array, **parameters))
        return status, json.loads(body)


INFER = "/v2/models/my%20model/infer"


def json_request(array: Any, **parameters: Any) -> bytes:
    values = np.asarray(array, dtype=np.float32)
    tensor = {"name": "x", "shape": list(values.shape), "datatype": "FP32", "data": values.reshape(-1).tolist()}
    return json.dumps({"inputs": [tensor], "parameters": parameters}).encode()


def fetch(
    address: str, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    """One request on a connection of its own."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


def talk(address: str, data: bytes) -> bytes:
    """Send bytes, say that no more come only after the server has closed; gives all it sent."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def answer_to_flood(connection: socket.socket, part: bytes, most: int) -> bytes:
    """Send ``part`` again and again until something comes back, at most ``most`` bytes; the answer's beginning.

    By one thread, which looks for the answer before each send: what is on its way by then is bounded by what
    the sockets hold, however slow the machine.
    """
    sent = 0
    while sent < most:
        readable, writable, _ = select.select([connection], [connection], [], PATIENCE)
        if readable:
            break
        assert writable, "the server neither reads nor answers"
        try:
            sent += connection.send(part)
        except OSError:
            # Closed already; the answer still lies here.
            break
    assert select.select([connection], [], [], 0)[0], f"no answer after {sent} bytes"
    return connection.recv(65536)


def parse_metrics(text: str) -> dict[str, float]:
    """Series (without the constant labels) and values."""
    series = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            start, _, labels = name.partition("{")
            rest = ",".join(
                one for one in labels.rstrip("}").split(",") if not one.startswith(("model=", "version=", "revision="))
            )
            series[f"{start}{{{rest}}}" if rest else start] = float(value)
    return series


@dataclass
class ServerProcess:
    """``python -m slipway_runtime serve`` and what it wrote."""

    process: subprocess.Popen[bytes]
    port: int
    grpc_port: int
    termination_log: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ready(self) -> bool:
        try:
            return fetch(self.address, "GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def await_ready(self) -> None:
        await_condition(lambda: self.ready() or self._must_live(), patience=300)

    def _must_live(self) -> bool:
        assert self.process.poll() is None, f"exit code {self.process.returncode}"
        return False

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(timeout=240)


@contextlib.contextmanager
def serving(tmp_path: Path, uri: str, *flags: str, version: str = "v1") -> Iterator[ServerProcess]:
    """Start a server process; it is ended when the block is left."""
    port, grpc_port = free_port(), free_port()
    log = tmp_path / "termination-log"
    command = [sys.executable, "-W", "error", "-m", "slipway_runtime", "serve", "--model-name", "m"]
    command += ["--model-version", version, "--revision", "m-v1-00000000", "--uri", uri, "--http-port", str(port)]
    command += ["--grpc-port", str(grpc_port), "--host", "127.0.0.1", "--pre-stop", "200ms", *flags]
    environment = {**os.environ, "SLIPWAY_TERMINATION_LOG": str(log), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=stderr)
    server = ServerProcess(process, port, grpc_port, log)
    try:
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=PATIENCE)
