"""What ``slipway-runtime serve`` was told, as values with types."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from slipway_runtime.serving.tenants import TenantRules
from slipway_runtime.telemetry.options import TelemetrySettings

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)")


def every_address() -> str:
    """The host that stands for every address: of IPv6 and IPv4, where the machine has IPv6.

    A cluster may know pods by one of the two alone.
    """
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            return "::"
    except (OSError, ValueError):
        return "0.0.0.0"  # noqa: S104 - a pod


class Format(StrEnum):
    """Kinds of model files named in the API; ``auto`` means: look into the file."""

    AUTO = "auto"
    TORCHSCRIPT = "torchscript"
    TORCH_EXPORT = "torch-export"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"
    PYTHON = "python"


class Device(StrEnum):
    """Where the model runs; ``auto`` takes a GPU if there is one."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """Number format of weights and activations."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


def parse_duration(text: str) -> float:
    """Seconds of a duration as Kubernetes writes it: ``5ms``, ``30s``, ``1m30s``, or ``0``.

    Raises ValueError for anything else.
    """
    if text == "0":
        return 0.0
    matches = list(_DURATION.finditer(text))
    if not matches or "".join(m.group(0) for m in matches) != text:
        raise ValueError(f"not a duration: {text!r} (examples: 5ms, 30s, 1m30s)")
    return sum(float(m.group(1)) * _UNITS[m.group(2)] for m in matches)


@dataclass(frozen=True)
class Access:
    """How the model is brought here, and what it has to prove."""

    public_key: Path | None = None
    """PEM file (or a folder with one) of the key that must have signed the model's digest."""
    signature: str = ""
    """The signature in base64 …"""
    signature_uri: str = ""
    """… or where it lies."""
    allow_pickle: bool = False
    """Let a signed model be unpickled."""
    storage_secret: Path | None = None
    """Folder with storage credentials, one file per key."""
    model_dir: Path | None = None
    """Where fetched models are kept; None: ``$SLIPWAY_MODEL_DIR`` or a temporary folder."""
    max_bytes: int = 100 * 1024**3
    """Largest artefact."""


@dataclass(frozen=True)
class ModelSettings:
    """Which model to serve, and under which identity it is seen in metrics and answers."""

    name: str
    version: str
    revision: str
    uri: str
    sha256: str = ""
    format: Format = Format.AUTO
    device: Device = Device.AUTO
    precision: Precision = Precision.FP32
    inputs_json: str = ""
    outputs_json: str = ""
    access: Access = field(default_factory=Access)
    instances: int | None = None
    """Copies that compute at once, on each device; None: as many as the model's folder says, or one."""
    cuda_device: int | None = None
    """Number of the GPU; None: the first."""
    cuda_devices: tuple[int, ...] = ()
    """GPUs that have copies of the model."""
    folder_version: str = ""
    """Which of several versions in a folder of Triton's layout; empty: the newest."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the server. Durations in seconds; ``max_concurrency`` 0 means no bound of its own."""

    max_batch_size: int = 32
    max_delay: float = 0.005
    timeout: float = 30.0
    max_queue: int = 512
    max_request_bytes: int = 64 * 1024 * 1024
    max_concurrency: int = 0
    adaptive: bool = True
    """Wait for company only while as much is coming as came the last time; otherwise always for ``max_delay``."""
    max_inflight_bytes: int = 0
    """Bodies of all requests in flight; 0: no bound."""
    cache_bytes: int = 0
    """Answers kept for identical requests; 0: none. Only for models that always give the same answer."""
    cache_ttl: float = 60.0


@dataclass(frozen=True)
class Warmup:
    """How the model is exercised before it counts as ready."""

    requests: int = 10
    file: Path | None = None


@dataclass(frozen=True)
class Listener:
    """Addresses, and how long to serve on after SIGTERM. Durations in seconds."""

    host: str = field(default_factory=lambda: os.environ.get("SLIPWAY_HOST") or every_address())
    http_port: int = 8080
    grpc_port: int = 9000
    grace: float = 60.0
    pre_stop: float = 2.0


class ControlPolicy(StrEnum):
    """Whether requests may load and unload models."""

    NONE = "none"
    EXPLICIT = "explicit"


@dataclass(frozen=True)
class RepositorySettings:
    """Which models there may be, and who may change them. Times in seconds."""

    folder: Path | None = None
    """One subfolder per model, with one model or a subfolder for each version in it."""
    control: ControlPolicy = ControlPolicy.NONE
    token_file: Path | None = None
    """Holds the bearer token that requests to load and unload must carry; None: none."""
    allow_changes: bool = False
    """Requests to load a model may say from where and as which version."""
    allow_signature_changes: bool = False
    """A model may be replaced by one with other inputs and outputs."""
    allow_no_models: bool = False
    """Without any model the server is ready all the same."""
    watch: float | None = None
    """How often to look whether the models on disk have changed; None: never."""
    rollback_window: float = 30.0
    """How long a model that was replaced is kept, to go back to it at once."""

    @property
    def lasting(self) -> bool:
        """Whether a model that cannot be loaded at the start may be loaded later."""
        return self.control is ControlPolicy.EXPLICIT or self.watch is not None


@dataclass(frozen=True)
class ServeSettings:
    """Everything ``serve`` needs. ``template`` holds what the models of a repository's folder have in common."""

    models: tuple[ModelSettings, ...]
    template: ModelSettings
    limits: Limits = Limits()
    warmup: Warmup = Warmup()
    listener: Listener = field(default_factory=Listener)
    repository: RepositorySettings = RepositorySettings()
    shadow_file: Path | None = None
    """JSON file that says where to live requests are repeated; it may appear later."""
    tenants: TenantRules | None = None
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    processes: int = 1
    """How many processes share the ports."""
    max_connections: int = 0
    """Of HTTP clients at once, for each process; 0: as many as the system allows."""
    keepalive_requests: int = 0
    """Requests on one HTTP connection; 0: no limit."""
