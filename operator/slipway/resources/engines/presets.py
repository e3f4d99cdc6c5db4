"""Triton, vLLM and servers that Slipway knows nothing of, and the choice among all."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from slipway.api.revisions import Revision
from slipway.api.versions import Engine, Precision
from slipway.resources.engines.delivered import (
    MODEL_NAME,
    MODEL_PATH,
    REPOSITORY_PATH,
    fetcher,
    model_mounts,
    model_volumes,
    shared_memory,
)
from slipway.resources.engines.server import Health, Server, default_ports, named_ports
from slipway.resources.engines.slipway import slipway
from slipway.resources.environment import environment
from slipway.resources.identity import Identity, RenderOptions

__all__ = ["default_image", "preset_of"]

TRITON_IMAGE = "tritonserver:26.06-py3"
VLLM_IMAGE = "vllm/vllm-openai:v0.26.0"
TRITON_USER = 1000
VLLM_USER = 2000
"""Both images have such a user, and would run as root."""
LEAVING = 5
"""Seconds until nobody sends requests to a pod that was taken from its Service."""
_DTYPES = {Precision.FP32: "float32", Precision.FP16: "float16", Precision.BF16: "bfloat16"}

Preset = Callable[[Identity, Revision, RenderOptions], Server]


def preset_of(engine: Engine) -> Preset:
    """What makes a revision's server of an engine."""
    return _PRESETS[engine]


def default_image(engine: Engine, runtime_image: str) -> str:
    """The image of pods that name none; ``runtime_image`` is the slipway server's. Empty for a custom server."""
    return {Engine.SLIPWAY: runtime_image, Engine.TRITON: TRITON_IMAGE, Engine.VLLM: VLLM_IMAGE}.get(engine, "")


def _triton(identity: Identity, revision: Revision, options: RenderOptions) -> Server:
    """NVIDIA Triton on a model repository with the model under the ModelDeployment's name.

    Models are loaded at the start and never by request: what is served is what was verified. A model that does not
    load ends the server. Its only latency histogram has to be asked for.
    """
    ports = default_ports(Engine.TRITON)
    grace = math.ceil(revision.runtime.termination_grace_period.seconds)
    arguments = (
        "tritonserver",
        f"--model-repository={REPOSITORY_PATH}",
        "--model-control-mode=none",
        "--strict-readiness=true",
        *(f"--{name}-port={number}" for name, number in ports.items()),
        "--metrics-config=histogram_latencies=true",
        f"--exit-timeout-secs={grace}",
        *revision.runtime.args,
    )
    return _with_model(
        revision,
        options,
        Server(revision.runtime.image or TRITON_IMAGE, arguments, ports, user=TRITON_USER, pre_stop=LEAVING),
        name=identity.name,
        layout="triton",
    )


def _vllm(identity: Identity, revision: Revision, options: RenderOptions) -> Server:
    """vLLM's OpenAI-compatible server on a folder of the Hugging Face form; clients name the ModelDeployment.

    Told to stop, it cuts off answers that are being written: it is told when their time is over.
    """
    runtime, ports = revision.runtime, default_ports(Engine.VLLM)
    arguments = [MODEL_PATH, "--served-model-name", identity.name, "--host", "0.0.0.0", "--port", str(ports["http"])]  # noqa: S104 - a pod
    if "precision" in runtime.model_fields_set:
        arguments += ["--dtype", _DTYPES[runtime.precision]]
    server = Server(
        runtime.image or VLLM_IMAGE,
        (*arguments, *runtime.args),
        ports,
        command=("vllm", "serve"),
        health=Health("/health", "/health"),
        # Libraries ask for the user's name, which older images do not know, and write caches. Idle connections
        # are left for the proxy to close, which does so after an hour: one that the server closes may have a request
        # under way, which is answered 503 then.
        environment={
            "USER": "vllm",
            "XDG_CACHE_HOME": "/tmp/cache",  # noqa: S108
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "3660",
        },
        user=VLLM_USER,
        pre_stop=LEAVING + math.ceil(runtime.termination_grace_period.seconds),
    )
    return _with_model(revision, options, server, name=MODEL_NAME, layout="plain")


def _custom(identity: Identity, revision: Revision, options: RenderOptions) -> Server:
    """Any server of the Open Inference Protocol: the user says image, arguments, and ports that differ.

    A version without ``uri`` has its model in the image, or gets it by itself: nothing is fetched.
    """
    runtime = revision.runtime
    named = named_ports(runtime.pod_template)
    # A number has one name: where a server takes HTTP on 9000, that is not gRPC's any more.
    ports = {name: number for name, number in default_ports(Engine.CUSTOM).items() if number not in named.values()}
    told = {"SLIPWAY_MODEL_PATH": MODEL_PATH} if revision.version.uri else {}
    server = Server(
        runtime.image,
        runtime.args,
        {**ports, **named},
        environment={
            "SLIPWAY_MODEL_NAME": identity.name,
            "SLIPWAY_MODEL_VERSION": revision.version.name,
            **told,
        },
        pre_stop=LEAVING,
    )
    if not revision.version.uri:
        volume, mount = shared_memory()
        return replace(server, volumes=(volume,), mounts=(mount,))
    return _with_model(revision, options, server, name=MODEL_NAME, layout="plain")


def _with_model(revision: Revision, options: RenderOptions, server: Server, *, name: str, layout: str) -> Server:
    """The server with an init container that brings the model."""
    init = fetcher(revision, options, environment(revision.runtime, {}), name=name, layout=layout)
    return replace(server, volumes=model_volumes(revision), mounts=model_mounts(), init_containers=(init,))


_PRESETS: Mapping[Engine, Preset] = {
    Engine.SLIPWAY: slipway,
    Engine.TRITON: _triton,
    Engine.VLLM: _vllm,
    Engine.CUSTOM: _custom,
}
