"""Which engine of Slipway's serves what KServe's runtimes serve."""

from dataclasses import dataclass

from slipway.conversion.ledger import Ledger, NotConvertibleError

__all__ = ["KSERVE_CONTAINER", "NAMED_SERVERS", "Server", "choose_server"]

Path = tuple[str | int, ...]

KSERVE_CONTAINER = "kserve-container"
NAMED_SERVERS = (
    "sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx", "huggingface", "pmml", "lightgbm", "paddle",
)  # fmt: skip
"""The old form: a server by the name of its framework."""

_TORCH = "TorchServe's archives (.mar) are not loaded: publish a TorchScript, torch.export or safetensors file"
_HUGGING_FACE = "vLLM generates text; other tasks of this runtime (classification, embeddings) need a Python handler"


@dataclass(frozen=True, slots=True)
class Server:
    """What serves the model."""

    engine: str
    """A word of ``spec.runtime.engine``."""
    format: str = ""
    """A word of ``spec.versions[].format``; empty where the engine finds out itself."""
    own_image: bool = False
    """The image of the source goes on serving."""
    named_at: Path = ()
    """Where the source says so."""


def choose_server(ledger: Ledger, model: Path) -> Server:
    """The server for the model described at ``model``; raises NotConvertibleError where Slipway has none."""
    if "containers" in model:
        return Server("custom", own_image=True, named_at=(*model, "name"))
    name_at: Path = (*model, "modelFormat", "name") if model[-1] == "model" else model
    framework = (ledger.text(*name_at) if model[-1] == "model" else str(model[-1])).lower()
    runtime = ledger.text(*model, "runtime").lower()
    if "triton" in runtime or framework == "triton":
        return _told(ledger, Server("triton", named_at=name_at), model)
    if "vllm" in runtime or framework in ("vllm", "huggingface"):
        return _told(ledger, Server("vllm", named_at=name_at), model, "" if framework == "vllm" else _HUGGING_FACE)
    if framework == "pytorch":
        return _told(ledger, Server("slipway", named_at=name_at), model, _TORCH)
    if framework in ("torchscript", "onnx"):
        return _told(ledger, Server("slipway", format=framework, named_at=name_at), model)
    raise NotConvertibleError(
        f"no engine of Slipway's serves {framework or 'a model without modelFormat'}; with an image of your own that "
        "speaks the Open Inference Protocol it can be an engine custom"
    )


def _told(ledger: Ledger, server: Server, model: Path, message: str = "") -> Server:
    at = server.named_at if model[-1] == "model" else (*model, "storageUri")
    if model[-1] == "model":
        ledger.settle(*at)
    if message:
        ledger.partly(message, *at)
    return server
