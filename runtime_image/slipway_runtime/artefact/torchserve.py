"""TorchServe's archive (.mar), unpacked: its manifest names program, model class and weights."""

from __future__ import annotations

from pathlib import Path

import msgspec

from slipway_runtime import journal
from slipway_runtime.artefact.description import Description, PythonClass, inside, read_text
from slipway_runtime.artefact.format import PROGRAMS, WEIGHTS, sniff
from slipway_runtime.refusal import Refusal

_MANIFEST = "MAR-INF/MANIFEST.json"


class _Model(msgspec.Struct, rename="camel"):
    serialized_file: str = ""
    model_file: str = ""
    handler: str = ""


class _Manifest(msgspec.Struct):
    model: _Model


def fits(folder: Path) -> bool:
    """Whether the folder is an unpacked .mar."""
    return (folder / _MANIFEST).is_file()


def describe(folder: Path) -> Description:
    """The model of the manifest. Its handler is written against TorchServe and is not run. Raises Refusal."""
    try:
        model = msgspec.json.decode(read_text(folder / _MANIFEST), type=_Manifest).model
    except msgspec.MsgspecError as error:
        raise Refusal("BadModelConfig", f"{_MANIFEST}: {error}") from error
    if not model.serialized_file:
        raise Refusal("NotAModel", f"{_MANIFEST} names no serializedFile")
    file = inside(folder, model.serialized_file)
    kind = sniff(file)
    code = PythonClass(inside(folder, model.model_file)) if model.model_file else None
    if kind not in PROGRAMS and not (kind in WEIGHTS and code is not None):
        raise Refusal("NotAModel", f"{file.name} is {kind.value}")
    if model.handler:
        journal.record("handler-left-out", "warning", handler=model.handler, text="requests are tensors, as the model")
    return Description(kind, file, folder, code if kind in WEIGHTS else None)
