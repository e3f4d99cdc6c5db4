"""``spec.versions`` and ``spec.runtime``: what a version is and how its pods run."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from slipway.api.scalars import Duration, Quantity
from slipway.api.wire import LATER, WireModel, keyed_by

__all__ = [
    "IMAGE",
    "OBJECT_NAME",
    "Batching",
    "Cache",
    "ConfigMapKey",
    "DataType",
    "Device",
    "Engine",
    "EnvVar",
    "Format",
    "Goldens",
    "Limits",
    "Pool",
    "Precision",
    "Runtime",
    "RuntimeOverrides",
    "Signature",
    "TenantLimit",
    "TenantOverride",
    "Tenants",
    "TensorSpec",
    "Tolerance",
    "Tracing",
    "Version",
    "Warmup",
]

Name = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
"""A version's name: a DNS label, short enough that ``<model deployment>-<name>-<hash>`` is one as well."""

Argument = Annotated[str, Field(max_length=4096)]

OBJECT_NAME = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
ObjectName = Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
"""Name of another object; empty where none is meant."""

IMAGE = r"^\S*$"
Image = Annotated[str, Field(max_length=1024, pattern=IMAGE)]


class Format(StrEnum):
    """File formats of a model artefact."""

    AUTO = "auto"
    TORCHSCRIPT = "torchscript"
    TORCH_EXPORT = "torch-export"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"
    PYTHON = "python"


class Engine(StrEnum):
    """The model server that a pod runs: a preset of ports, probes, arguments and metric names."""

    SLIPWAY = "slipway"
    TRITON = "triton"
    VLLM = "vllm"
    CUSTOM = "custom"


class Device(StrEnum):
    """Where a model computes."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Precision(StrEnum):
    """The number format that a model computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


class Pool(StrEnum):
    """Whether versions have pods of their own."""

    DEDICATED = "Dedicated"
    SHARED = "Shared"


class DataType(StrEnum):
    """Tensor datatypes of the Open Inference Protocol."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"


class ConfigMapKey(WireModel):
    """A key of a ConfigMap in the same namespace."""

    config_map: ObjectName = Field(min_length=1)
    """Name of the ConfigMap."""
    key: str = Field(default="", max_length=253, pattern=r"^[-._a-zA-Z0-9]*$")
    """Key in the ConfigMap; empty means its only key."""


class Signature(WireModel):
    """A detached signature over the artefact's SHA-256 (ed25519 or ECDSA P-256, compatible with cosign)."""

    public_key: ConfigMapKey
    """Where the public key (PEM) lies."""
    value: str = Field(default="", max_length=4096)
    """The signature in base64."""
    uri: str = Field(default="", max_length=2048)
    """Where the signature lies, instead of value."""


class TensorSpec(WireModel):
    """An input or output tensor of the declared contract, in the terms of the Open Inference Protocol."""

    name: str = Field(min_length=1, max_length=256)
    """Name of the tensor."""
    datatype: DataType
    """Datatype of the Open Inference Protocol."""
    shape: tuple[Annotated[int, Field(ge=-1)], ...] = Field(max_length=16)
    """Dimensions; -1 stands for any size, the first one usually for the batch."""


class Tolerance(WireModel):
    """How far an answer may lie from the expected one: |answer - expected| <= atol + rtol * |expected|."""

    rtol: float = Field(default=1e-3, ge=0)
    """Relative tolerance."""
    atol: float = Field(default=1e-5, ge=0)
    """Absolute tolerance."""


class Goldens(WireModel):
    """Requests with known answers, checked before the version gets any traffic; they double as warm-up."""

    config_map: ObjectName = Field(min_length=1)
    """ConfigMap with one JSON document per key: a list of {request, response} in the Open Inference Protocol."""
    tolerance: Tolerance = Tolerance()
    """How far an answer may lie from the golden one."""


class Batching(WireModel):
    """Dynamic batching in the server."""

    max_size: int = Field(default=32, ge=1, le=4096)
    """Most rows in one batch."""
    max_delay: Duration = Duration("5ms")
    """Longest time that a request waits for others to share its batch."""
    adaptive: bool = True
    """Let the server shorten the wait when load is low."""


class Limits(WireModel):
    """What a server accepts before it answers 413, 429 or 504."""

    timeout: Duration = Duration("30s")
    """Longest time a request may take, queueing included."""
    max_queue: int = Field(default=512, ge=1, le=1_000_000)
    """Requests waiting in a server before it answers 429."""
    max_request_bytes: Quantity = Quantity("64Mi")
    """Largest request body."""
    max_concurrency: int = Field(default=0, ge=0, le=100_000)
    """Requests in flight in one server before it answers 429; 0 sets no limit."""
    max_inflight_bytes: Quantity = Quantity("0")
    """Bodies of all requests in flight in one server before it answers 429; 0 sets no limit."""


class TenantLimit(WireModel):
    """A tenant's share of one server."""

    requests_per_second: float = Field(default=0, ge=0)
    """Sustained rate; 0 sets no limit."""
    priority: int = Field(default=1, ge=0, le=100)
    """Higher goes first in the queue."""


class TenantOverride(TenantLimit):
    """The share of one named tenant."""

    name: str = Field(min_length=1, max_length=253)
    """The tenant's name as the header gives it."""


class Tenants(WireModel):
    """Shares of each server by tenant; the tenant is named by a request header."""

    header: str = Field(default="", max_length=128, pattern=r"^[a-zA-Z0-9-]*$")
    """Header that names the tenant, or that the mesh writes the verified claims to; empty turns tenants off."""
    claim: str = Field(default="", max_length=128)
    """Claim of the JSON Web Token that names the tenant; empty takes the header itself."""
    default: TenantLimit = TenantLimit()
    """Share of every tenant without one of its own."""
    overrides: tuple[TenantOverride, ...] = Field(default=(), max_length=64, json_schema_extra=keyed_by("name"))
    """Shares of named tenants."""


class Warmup(WireModel):
    """Requests that a server answers to itself before it reports ready."""

    requests: int = Field(default=10, ge=0, le=10_000)
    """Number of warm-up requests."""


class Cache(WireModel):
    """Cache of answers to identical requests, for deterministic models."""

    max_bytes: Quantity = Quantity("0")
    """Size of the cache; 0 turns it off."""
    ttl: Duration = Duration("60s")
    """How long an answer is kept."""


class Tracing(WireModel):
    """OpenTelemetry traces from the server."""

    endpoint: str = Field(default="", max_length=2048, pattern=r"^(https?://[^/?#@\s][^?#@\s]*)?$")
    """OTLP endpoint (HTTP), such as http://otel-collector.observability:4318; empty turns tracing off."""
    sample_ratio: float = Field(default=0.01, ge=0, le=1)
    """Share of requests that start a trace when the caller did not decide."""


class EnvVar(WireModel):
    """An environment variable of the server container, as in a Pod."""

    name: str = Field(min_length=1, max_length=253)
    """Name of the variable."""
    value: str = Field(default="", max_length=32768)
    """Its value."""
    value_from: dict[str, Any] | None = None
    """Its source instead of a value, as in a Pod (fieldRef, configMapKeyRef, secretKeyRef)."""


class RuntimeOverrides(WireModel):
    """Settings of one version that differ from spec.runtime. Only what is set here is overridden; objects merge,
    lists replace."""

    image: Image | None = None
    """Container image of this version's pods."""
    device: Device | None = None
    """Where the model computes."""
    precision: Precision | None = None
    """The number format that the model computes in."""
    resources: dict[str, Any] | None = None
    """Resource requests and limits of the server container."""
    batching: Batching | None = None
    """Dynamic batching in the server."""
    limits: Limits | None = None
    """What a server accepts before it refuses."""
    warmup: Warmup | None = None
    """Warm-up before ready."""
    cache: Cache | None = None
    """Cache of answers."""
    tracing: Tracing | None = None
    """OpenTelemetry traces."""
    env: tuple[EnvVar, ...] | None = Field(default=None, max_length=128, json_schema_extra=keyed_by("name"))
    """Environment of the server container."""
    args: tuple[Argument, ...] | None = Field(default=None, max_length=128)
    """Arguments appended to the engine's own."""
    service_account_name: ObjectName | None = None
    """ServiceAccount of the pods."""
    pod_template: dict[str, Any] | None = None
    """Strategic overlay on the pod template."""
    termination_grace_period: Duration | None = None
    """Time a pod has to finish its requests after it was told to stop."""


class Version(WireModel):
    """One version of the model: the only place where it is described."""

    name: Name
    """Name of the version; becomes the metric label and the value of the version header."""
    uri: str = Field(default="", max_length=2048, pattern=r"^((file|pvc|s3|gs|https|hf|oci|models)://?.+)?$")
    """Where the artefact lies: file:// pvc:// s3:// gs:// https:// hf:// oci:// or models:/. Engine custom may do
    without, where the image or the server itself brings the model."""
    sha256: str = Field(default="", max_length=64, pattern=r"^([0-9a-f]{64})?$")
    """SHA-256 of the artefact (a file, or the canonical digest of a folder), checked before it is loaded."""
    format: Format = Format.AUTO
    """File format of the artefact."""
    signature: Signature | None = None
    """Detached signature over the digest."""
    inputs: tuple[TensorSpec, ...] = Field(default=(), max_length=64, json_schema_extra=keyed_by("name"))
    """Declared input tensors; checked against what was loaded."""
    outputs: tuple[TensorSpec, ...] = Field(default=(), max_length=64, json_schema_extra=keyed_by("name"))
    """Declared output tensors; checked against what was loaded."""
    goldens: Goldens | None = None
    """Requests that must give known answers before the version gets traffic."""
    storage_secret: ObjectName = ""
    """Secret with storage credentials, mounted into the pod by name; the operator itself never reads it."""
    runtime: RuntimeOverrides = RuntimeOverrides()
    """Settings of this version's pods, merged over spec.runtime."""


class Runtime(WireModel):
    """How the pods of every version run."""

    engine: Engine = Engine.SLIPWAY
    """The model server: a preset of ports, probes, arguments and metric names."""
    image: Image = ""
    """Container image; empty means the image that belongs to this release of the engine."""
    device: Device = Device.AUTO
    """Where the model computes."""
    precision: Precision = Precision.FP32
    """The number format that the model computes in."""
    resources: dict[str, Any] = Field(default_factory=dict)
    """Resource requests and limits of the server container."""
    batching: Batching = Batching()
    """Dynamic batching in the server."""
    limits: Limits = Limits()
    """What a server accepts before it refuses."""
    tenants: Tenants = Tenants()
    """Shares of the server by tenant."""
    warmup: Warmup = Warmup()
    """Warm-up before ready."""
    cache: Cache = Cache()
    """Cache of answers."""
    tracing: Tracing = Tracing()
    """OpenTelemetry traces."""
    env: tuple[EnvVar, ...] = Field(default=(), max_length=128, json_schema_extra=keyed_by("name"))
    """Environment of the server container."""
    args: tuple[Argument, ...] = Field(default=(), max_length=128)
    """Arguments appended to the engine's own."""
    service_account_name: ObjectName = ""
    """ServiceAccount of the pods."""
    pod_template: dict[str, Any] = Field(default_factory=dict)
    """Strategic overlay on the pod template: affinity, tolerations, volumes, sidecars."""
    termination_grace_period: Duration = Duration("60s")
    """Time a pod has to finish its requests after it was told to stop."""
    pool: Pool = Field(default=Pool.DEDICATED, json_schema_extra=LATER)
    """Dedicated: pods per version. Shared: versions share pods, for scarce GPUs."""
