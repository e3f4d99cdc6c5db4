"""MLflow's model folder: the file ``MLmodel`` names the flavours and the signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from slipway_runtime.artefact.description import Description, inside, read_text
from slipway_runtime.artefact.format import PROGRAMS, sniff
from slipway_runtime.refusal import Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

_FILE = "MLmodel"
_DATATYPES = {str(datatype.numpy): datatype for datatype in Datatype if datatype is not Datatype.BF16}
_PROGRAM_NAMES = ("model.pt2", "model.pth", "model.pt", "model.onnx")


def fits(folder: Path) -> bool:
    """Whether MLflow wrote the folder."""
    return (folder / _FILE).is_file()


def describe(folder: Path) -> Description:
    """The program of the ``onnx`` or ``pytorch`` flavour. Raises Refusal for pickled modules and other flavours."""
    try:
        document = yaml.safe_load(read_text(folder / _FILE))
        flavors: dict[str, Any] = document["flavors"]
        file = _program(folder, flavors)
        signature = document.get("signature") or {}
        inputs, outputs = _specs(signature.get("inputs")), _specs(signature.get("outputs"))
    except (yaml.YAMLError, msgspec.MsgspecError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise Refusal("BadModelConfig", f"{_FILE} is not one that this server can read") from error
    kind = sniff(file)
    if kind not in PROGRAMS:
        raise Refusal(
            "NotAModel",
            f"{file.relative_to(folder)} is {kind.value}; log the model as TorchScript, torch.export or ONNX",
        )
    return Description(kind, file, folder, inputs=inputs, outputs=outputs)


def _program(folder: Path, flavors: dict[str, Any]) -> Path:
    if "onnx" in flavors:
        return inside(folder, flavors["onnx"]["data"])
    if "pytorch" not in flavors:
        raise Refusal(
            "FormatNotSupported", f"MLflow flavours {', '.join(flavors)}: only onnx and pytorch can be served"
        )
    data = flavors["pytorch"].get("model_data", "data")
    for name in _PROGRAM_NAMES:
        if (folder / data / name).is_file():
            return inside(folder, f"{data}/{name}")
    raise Refusal("NotAModel", f"the folder '{data}' of the MLflow model holds no model file")


def _specs(text: str | None) -> tuple[TensorSpec, ...] | None:
    """Tensor specifications of a signature; None for one of columns, which names no shapes."""
    entries = msgspec.json.decode(text) if text else []
    if not entries or any(entry.get("type") != "tensor" or not entry.get("name") for entry in entries):
        return None
    return tuple(_spec(entry["name"], entry["tensor-spec"]) for entry in entries)


def _spec(name: str, described: dict[str, Any]) -> TensorSpec:
    return TensorSpec(name, _DATATYPES[str(np.dtype(described["dtype"]))], tuple(described["shape"]))
