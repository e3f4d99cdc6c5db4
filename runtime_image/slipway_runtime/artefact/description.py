"""What a model's folder says about the model: its own ``config.yaml``, read without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import yaml

from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.refusal import Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

CONFIG_NAME = "config.yaml"
MAX_CONFIG_BYTES = 1024 * 1024


@dataclass(frozen=True)
class PythonClass:
    """A class in a Python file of the model's folder; without a name, the only one that fits."""

    file: Path
    name: str = ""


@dataclass(frozen=True)
class Description:
    """How to load a model. ``inputs`` and ``outputs`` are None where the folder does not declare them.

    ``file`` holds the program or the weights (a handler may have none), ``code`` the model's class or the
    handler, ``arguments`` what its constructor is given. ``max_rows`` bounds a batch; ``row_wise`` False
    forbids to run requests together, None leaves it to be found out. ``instances`` copies of it run at once.
    """

    kind: ModelKind
    file: Path
    root: Path | None = None
    code: PythonClass | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] | None = None
    max_rows: int | None = None
    row_wise: bool | None = None
    instances: int | None = None


class _Tensor(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    datatype: Datatype
    shape: list[int]


class _Batching(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    max_size: int | None = None
    row_wise: bool | None = None


class _Config(msgspec.Struct, forbid_unknown_fields=True):
    model: str = ""
    class_: str = msgspec.field(name="class", default="")
    handler: str = ""
    arguments: dict[str, Any] = {}
    inputs: list[_Tensor] | None = None
    outputs: list[_Tensor] | None = None
    batching: _Batching = _Batching()
    instances: int | None = None


@dataclass(frozen=True)
class FolderConfig:
    """The content of a ``config.yaml``; paths are inside the folder and exist."""

    model: Path | None
    model_class: PythonClass | None
    handler: PythonClass | None
    arguments: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    max_rows: int | None
    row_wise: bool | None
    instances: int | None


def read_config(folder: Path) -> FolderConfig:
    """The folder's ``config.yaml``; all defaults where there is none. Raises Refusal (BadModelConfig)."""
    path = folder / CONFIG_NAME
    try:
        document = yaml.safe_load(read_text(path)) if path.is_file() else None
        config = msgspec.convert(document or {}, type=_Config, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: {error}") from error
    if config.class_ and config.handler:
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: give class or handler, not both")
    if config.batching.max_size is not None and config.batching.max_size < 1:
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: batching.maxSize must be 1 or more")
    if config.instances is not None and config.instances < 1:
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: instances must be 1 or more")
    return FolderConfig(
        model=inside(folder, config.model) if config.model else None,
        model_class=_python_class(folder, config.class_),
        handler=_python_class(folder, config.handler),
        arguments=config.arguments,
        inputs=_specs(config.inputs),
        outputs=_specs(config.outputs),
        max_rows=config.batching.max_size,
        row_wise=config.batching.row_wise,
        instances=config.instances,
    )


def read_text(path: Path) -> str:
    """A small text file of a model's folder. Raises Refusal when it is large or no text."""
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise Refusal("BadModelConfig", f"{path.name} is larger than {MAX_CONFIG_BYTES} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("BadModelConfig", f"{path.name} is no text") from error


def inside(folder: Path, name: str) -> Path:
    """The file ``name`` in the folder. Raises Refusal when it leads out of the folder or is not there."""
    parts = PurePosixPath(name).parts
    path = folder / name
    if not parts or name.startswith("/") or ".." in parts or not path.resolve().is_relative_to(folder.resolve()):
        raise Refusal("ArtefactUnsafe", f"'{name}' leads out of the model's folder")
    if not path.is_file():
        raise Refusal("NotAModel", f"the folder has no file '{name}'")
    return path


def _python_class(folder: Path, text: str) -> PythonClass | None:
    """``file.py:Name``, or ``file.py`` for the only class in it that fits."""
    if not text:
        return None
    file, _, name = text.partition(":")
    if not file.endswith(".py") or (name and not name.isidentifier()):
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: '{text}' is not of the form file.py:Class")
    return PythonClass(inside(folder, file), name)


def _specs(entries: list[_Tensor] | None) -> tuple[TensorSpec, ...] | None:
    if not entries:
        return None
    specs = tuple(TensorSpec(one.name, one.datatype, tuple(one.shape)) for one in entries)
    if len({spec.name for spec in specs}) != len(specs):
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: a tensor's name is given twice")
    if any(size < -1 for spec in specs for size in spec.shape):
        raise Refusal("BadModelConfig", f"{CONFIG_NAME}: a dimension is -1 or more")
    return specs
