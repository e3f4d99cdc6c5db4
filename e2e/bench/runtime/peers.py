"""The servers that are compared: how each is started, what it speaks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from e2e.bench.runtime import triton
from e2e.bench.runtime.environments import python_of
from e2e.bench.runtime.served.models import MODELS
from e2e.bench.runtime.workloads import Wire, Workload

_SERVED = "e2e.bench.runtime.served"


@dataclass(frozen=True)
class Launch:
    """What a server is started with: its folder, ports, and the workload's model and batch."""

    folder: Path
    http_port: int
    grpc_port: int
    spare_port: int
    model: str
    batch: int


@dataclass(frozen=True)
class Command:
    """A process, and what it has in its environment besides the usual."""

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A server. ``cannot`` says, by wire, why it is not asked over it."""

    name: str
    title: str
    start: Callable[[Launch], Command]
    path: str = "/v2/models/m/infer"
    cannot: Mapping[Wire, str] = field(default_factory=dict)
    rows_path: str = ""
    """Where it takes rows to batch, if that is not where it takes requests."""
    models: frozenset[str] = frozenset(MODELS)
    pure_python: bool = True
    takes_pythonpath: bool = True

    def refusal(self, workload: Workload) -> str:
        """Why it cannot do a workload; empty if it can."""
        if workload.model not in self.models:
            return "not asked: it would be the same as without"
        return self.cannot.get(workload.wire, "")


def _slipway(module: str) -> Callable[[Launch], Command]:
    def start(launch: Launch) -> Command:
        served = MODELS[launch.model]
        folder = launch.folder / "model"
        folder.mkdir()
        (folder / "handler.py").write_text(f"from {_SERVED}.slipway_handler import Served\n\n__all__ = ['Served']\n")
        config = {
            "handler": "handler.py:Served",
            "inputs": [{"name": o.name, "datatype": o.datatype, "shape": list(o.shape)} for o in served.inputs],
            "outputs": [{"name": o.name, "datatype": o.datatype, "shape": list(o.shape)} for o in served.outputs],
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        words = [sys.executable, "-m", module, "serve", "--model-name", "m", "--model-version", "1"]
        words += ["--uri", folder.resolve().as_uri(), "--host", "127.0.0.1", "--http-port", str(launch.http_port)]
        words += ["--grpc-port", str(launch.grpc_port), "--device", "cpu", "--pre-stop", "0s", "--grace", "1s"]
        return Command(words, {"SLIPWAY_TERMINATION_LOG": "/dev/null"})

    return start


def _bare(launch: Launch) -> Command:
    return Command([sys.executable, "-m", f"{_SERVED}.bare_server", str(launch.http_port)])


def _script(environment: str, module: str) -> Callable[[Launch], Command]:
    def start(launch: Launch) -> Command:
        python = str(python_of(environment))
        return Command([python, "-m", f"{_SERVED}.{module}", str(launch.http_port), str(launch.grpc_port)])

    return start


def _mlserver(launch: Launch) -> Command:
    settings = {
        "host": "127.0.0.1",
        "http_port": launch.http_port,
        "grpc_port": launch.grpc_port,
        "metrics_port": launch.spare_port,
        "parallel_workers": 0,
        "debug": False,
    }
    model: dict[str, object] = {"name": "m", "implementation": f"{_SERVED}.mlserver_runtime.Runtime"}
    if launch.batch > 1:
        model |= {"max_batch_size": launch.batch, "max_batch_time": 0.001}
    (launch.folder / "settings.json").write_text(json.dumps(settings))
    (launch.folder / "model-settings.json").write_text(json.dumps(model))
    return Command([str(python_of("mlserver").with_name("mlserver")), "start", str(launch.folder)])


def _bentoml(launch: Launch) -> Command:
    words = [str(python_of("bentoml")), "-m", "bentoml", "serve", f"{_SERVED}.bentoml_service:Served"]
    words += ["--host", "127.0.0.1", "--port", str(launch.http_port)]
    return Command(words, {"BENTOML_HOME": str(launch.folder), "BENTOML_DO_NOT_TRACK": "True"})


def _triton(launch: Launch) -> Command:
    repository = triton.write_repository(launch.folder / "repository", launch.model, launch.batch)
    words = triton.command(repository, launch.http_port, launch.grpc_port, ["m"])
    return Command(words, triton.environment())


def _triton_batching(launch: Launch) -> Command:
    return _triton(replace(launch, batch=max(launch.batch, 32)))


_NO_PROTOCOL = "does not speak the Open Inference Protocol, so no binary tensors"
_OWN = {Wire.BINARY: _NO_PROTOCOL, Wire.GRPC: "has no gRPC of the Open Inference Protocol"}
_SMALL = frozenset({"identity"})
PEERS = (
    Peer(
        "bare",
        "bare asyncio, no server",
        _bare,
        cannot={Wire.BINARY: "reads JSON only", Wire.GRPC: "reads JSON only"},
        models=frozenset({"identity", "voice"}),
    ),
    Peer("slipway", "Slipway", _slipway("slipway_runtime")),
    Peer("slipway-threaded", "Slipway, model on its thread", _slipway(f"{_SERVED}.slipway_threaded")),
    Peer("triton", "Triton, Python backend", _triton, pure_python=False),
    Peer("triton-batching", "Triton, with its batcher", _triton_batching, models=_SMALL, pure_python=False),
    Peer("litserve", "LitServe", _script("litserve", "litserve_server"), "/predict", _OWN),
    Peer(
        "mlserver",
        "MLServer",
        _mlserver,
        cannot={Wire.BINARY: "answers 422: its HTTP has no binary tensors"},
    ),
    Peer("kserve", "KServe", _script("kserve", "kserve_server")),
    Peer("bentoml", "BentoML", _bentoml, "/infer", _OWN, rows_path="/rows"),
    Peer("ray", "Ray Serve", _script("ray", "ray_app"), "/", _OWN),
)
