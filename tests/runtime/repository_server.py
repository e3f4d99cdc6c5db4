"""A server of real model files inside the test process, which loads and unloads them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvloop
from slipway_runtime.http.connection import Bounds
from slipway_runtime.http.inference import InferenceEndpoint
from slipway_runtime.http.listener import HttpListener
from slipway_runtime.http.routes import Router
from slipway_runtime.repository.control import ModelControl
from slipway_runtime.repository.repository import Repository
from slipway_runtime.rpc.inference import RpcInference
from slipway_runtime.rpc.listener import RpcListener
from slipway_runtime.rpc.service import RpcService
from slipway_runtime.settings import ControlPolicy, Limits, ModelSettings, RepositorySettings, ServeSettings, Warmup

from tests.runtime.harness import PATIENCE, fetch, json_request

EXPLICIT = RepositorySettings(control=ControlPolicy.EXPLICIT, allow_changes=True)
_TENSOR = "[{name: x, datatype: FP32, shape: [-1, 4]}]"
_HANDLER = """
import time
from pathlib import Path


class Handler:
    def load(self, context):
        self.folder = context.folder

    def predict(self, inputs):
        {body}
        return {{"y": inputs["x"] * {factor}}}
"""
_WAITING = """time.sleep(0.001)  # long enough not to run on the event loop
        running = self.folder.parent / "gate" / f"running-{factor}-{time.monotonic_ns()}"
        if running.parent.exists():
            running.touch()
            while not (running.parent / "open").exists():
                time.sleep(0.002)"""
_FAILING = """if (self.folder.parent / "broken").exists():
            raise {error}"""


class Scale(torch.nn.Module):
    """Every number times the factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Flat(torch.nn.Module):
    """One number a row: an output of another rank."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=1)


def write(folder: Path, factor: float = 0.0, module: torch.nn.Module | None = None, config: str = "") -> Path:
    """A folder with a TorchScript program; written beside and moved, as a careful publisher does."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = "[-1]" if isinstance(module, Flat) else "[-1, 4]"
    text = f"inputs: {_TENSOR}\noutputs: [{{name: y, datatype: FP32, shape: {shape}}}]\n{config}"
    (folder / "config.yaml").write_text(text)
    fresh, buffer = folder / ".fresh", io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(module or Scale(factor)), buffer)
    fresh.write_bytes(buffer.getvalue())
    fresh.rename(folder / "model.pt")
    return folder


def write_waiting(folder: Path, factor: float, config: str = "") -> Path:
    """A handler that, while there is a folder `gate` beside its own, says so there and waits for a file `open`."""
    return _write_handler(folder, factor, _WAITING.replace("{factor}", str(factor)), config)


def write_failing(folder: Path, factor: float, error: str) -> Path:
    """A handler that fails with the error while there is a file `broken` beside its folder."""
    return _write_handler(folder, factor, _FAILING.replace("{error}", error), "")


def _write_handler(folder: Path, factor: float, body: str, config: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "handler.py").write_text("import torch\n" + _HANDLER.format(body=body, factor=factor))
    outputs = _TENSOR.replace("name: x", "name: y")
    (folder / "config.yaml").write_text(f"handler: handler.py\ninputs: {_TENSOR}\noutputs: {outputs}\n{config}")
    return folder


def model(place: Path, name: str = "m", version: str = "1", **more: Any) -> ModelSettings:
    return ModelSettings(name=name, version=version, revision="", uri=place.as_uri(), **more)


class RepositoryServer:
    """Starts when entered; all models are loaded then, or have failed to."""

    def __init__(self, *models: ModelSettings, rules: RepositorySettings = EXPLICIT, limits: Limits | None = None):
        template = ModelSettings("", "", "", "")
        self.settings = ServeSettings(
            models, template, limits or Limits(max_delay=0), Warmup(requests=1), repository=rules
        )
        self.lost: list[BaseException] = []
        self.failure: BaseException | None = None
        self._opened = threading.Event()
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), daemon=True)

    def __enter__(self) -> RepositoryServer:
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
        self.repository = Repository(allow_empty=self.settings.repository.allow_no_models)
        self.control = ModelControl(self.repository, self.settings, 1, self.lost.append)
        self.control.announce()
        endpoint = InferenceEndpoint(1 << 26)
        listener = HttpListener(Router(self.repository, endpoint, self.control), Bounds(1 << 26))
        self.port = await listener.open("127.0.0.1", 0)
        service = RpcService(self.repository, RpcInference(self.repository), self.control)
        rpc = RpcListener(service, 1 << 26)
        self.grpc_port = await rpc.open("127.0.0.1", 0)
        try:
            await self.control.start()
        except Exception as error:
            self.failure = error
        self._opened.set()
        await self._stop.wait()
        self.control.close()
        listener.close()
        await rpc.close()
        endpoint.close()

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the server's event loop and give its result."""
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return done.result(PATIENCE)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def ask(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        body = None if document is None else json.dumps(document).encode()
        status, answer, _ = fetch(self.address, method, path, body)
        return status, json.loads(answer) if answer else None

    def load(self, name: str = "m", **parameters: Any) -> tuple[int, Any]:
        return self.ask("POST", f"/v2/repository/models/{name}/load", {"parameters": parameters})

    def infer(self, name: str = "m", version: str = "") -> float:
        """What becomes of a one."""
        path = f"/v2/models/{name}/versions/{version}/infer" if version else f"/v2/models/{name}/infer"
        status, body, _ = fetch(self.address, "POST", path, json_request(np.ones((1, 4))))
        assert status == 200, body
        return float(json.loads(body)["outputs"][0]["data"][0])

    def index(self) -> dict[str, tuple[str, str]]:
        """State and reason by name and version."""
        entries = self.ask("POST", "/v2/repository/index")[1]
        return {f"{one['name']}:{one['version']}": (one["state"], one["reason"]) for one in entries}
