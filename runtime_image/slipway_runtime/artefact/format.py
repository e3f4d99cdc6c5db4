"""What kind of file this is, judged by its content and never by its name."""

from __future__ import annotations

import zipfile
from enum import Enum
from pathlib import Path

from slipway_runtime.artefact.zip_directory import check_directory
from slipway_runtime.refusal import Refusal

_HEAD_BYTES = 512


class ModelKind(Enum):
    """Kinds of files people put where a model should be; the value says what was found."""

    TORCHSCRIPT = "a TorchScript program"
    TORCH_EXPORT = "a torch.export program"
    CHECKPOINT = "a PyTorch checkpoint (weights without a program)"
    ZIP = "a zip archive that is no PyTorch program"
    ONNX = "an ONNX model"
    SAFETENSORS = "safetensors weights"
    PICKLE = "a Python pickle, which this server never opens"
    LFS_POINTER = "a Git LFS pointer: the model itself was never downloaded"
    HTML = "an HTML page, perhaps an error page saved as the model"
    HDF5 = "an HDF5 file (Keras)"
    GZIP = "a gzip archive"
    TAR = "a tar archive"
    HANDLER = "a Python handler"
    EMPTY = "an empty file"
    TEXT = "a text file"
    UNKNOWN = "an unknown kind of file"


PROGRAMS = frozenset({ModelKind.TORCHSCRIPT, ModelKind.TORCH_EXPORT, ModelKind.ONNX})
"""Kinds that run by themselves."""
WEIGHTS = frozenset({ModelKind.SAFETENSORS, ModelKind.CHECKPOINT})
"""Kinds that need the class of the model."""
ARCHIVES = frozenset({ModelKind.ZIP, ModelKind.GZIP, ModelKind.TAR})
"""Kinds that are unpacked and then judged as a folder."""

# How torch.save began its files before it wrote zip archives: a pickled magic number.
_OLD_CHECKPOINT = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_MAGIC = (
    (_OLD_CHECKPOINT, ModelKind.CHECKPOINT),
    (b"\x80\x02", ModelKind.PICKLE),
    (b"\x80\x03", ModelKind.PICKLE),
    (b"\x80\x04", ModelKind.PICKLE),
    (b"\x80\x05", ModelKind.PICKLE),
    (b"\x89HDF", ModelKind.HDF5),
    (b"\x1f\x8b", ModelKind.GZIP),
    (b"version https://git-lfs", ModelKind.LFS_POINTER),
    (b"<!DOCTYPE", ModelKind.HTML),
    (b"<html", ModelKind.HTML),
)
_SAFETENSORS_BRACE = 8
_TAR_MAGIC = slice(257, 262)
# ONNX has no magic: a protobuf whose first field is ir_version (1, varint), a small number.
_ONNX_IR_VERSIONS = range(3, 32)


def sniff(path: Path) -> ModelKind:
    """The kind of the file at ``path``."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if not head:
        return ModelKind.EMPTY
    if head.startswith(b"PK\x03\x04"):
        return _zip_kind(path)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[_TAR_MAGIC] == b"ustar":
        return ModelKind.TAR
    if len(head) > _SAFETENSORS_BRACE and head[_SAFETENSORS_BRACE] == ord("{") and head[7] == 0:
        return ModelKind.SAFETENSORS
    if len(head) > 1 and head[0] == 0x08 and head[1] in _ONNX_IR_VERSIONS:
        return ModelKind.ONNX
    return ModelKind.TEXT if _is_text(head) else ModelKind.UNKNOWN


def identify(path: Path) -> ModelKind:
    """The kind of a file this server can run. Raises Refusal saying what was found otherwise."""
    kind = sniff(path)
    if kind in WEIGHTS:
        raise Refusal(
            "NotAModel",
            f"this is {kind.value}: put it into a folder with a config.yaml that names the model's class",
        )
    if kind not in PROGRAMS:
        raise Refusal("NotAModel", f"this is no TorchScript, torch.export or ONNX program but {kind.value}")
    return kind


def _zip_kind(path: Path) -> ModelKind:
    try:
        with path.open("rb") as stream:
            check_directory(stream)
        with zipfile.ZipFile(path) as archive:
            # PyTorch puts everything under one top folder.
            names = {name.partition("/")[2] for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return ModelKind.UNKNOWN
    if "archive_format" in names and any(name.startswith("models/") for name in names):
        return ModelKind.TORCH_EXPORT
    if "data.pkl" in names:
        has_code = any(name.startswith("code/") for name in names)
        return ModelKind.TORCHSCRIPT if has_code else ModelKind.CHECKPOINT
    return ModelKind.ZIP


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in head
