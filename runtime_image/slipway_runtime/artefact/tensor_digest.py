"""One digest over tensors, whatever files they are spread over: proof that copies of weights are equal.

A file's digest changes with its header, its order and its sharding. This one is the SHA-256 over the lines
``<hex of the bytes>  <name> <datatype> <shape>\\n``, sorted by name, so that copies on several hosts compare equal
when, and only when, they hold the same tensors.
"""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipway_runtime.refusal import ExitCode, Refusal

SAFETENSORS = ".safetensors"
STATE_DICTS = (".pt", ".pth", ".bin")


def tensor_lines(path: Path) -> str:
    """The lines of all tensors in a file, or in the shards of a folder.

    Safetensors are read, and state dicts (``torch.save``) without executing anything. Raises Refusal for a file that
    is neither, a name that two shards have, or when there is no tensor at all.
    """
    if not path.exists():
        raise Refusal("ArtefactNotFound", f"there is no model at {path}", ExitCode.ARTEFACT_NOT_FOUND)
    lines: dict[str, str] = {}
    for file in _shards(path):
        for name, tensor in _tensors(file):
            if name in lines:
                raise Refusal("ArtefactUnsafe", f"two shards hold a tensor {name!r}; {file.name} is the second")
            lines[name] = f"{_hex_of(tensor)}  {name} {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}\n"
    if not lines:
        raise Refusal("UnknownFormat", f"{path} holds no tensors: neither {SAFETENSORS} nor a state dict")
    return "".join(lines[name] for name in sorted(lines))


def tensors_digest(path: Path) -> str:
    """Hex digest over :func:`tensor_lines`. Raises Refusal."""
    return hashlib.sha256(tensor_lines(path).encode()).hexdigest()


def _shards(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    safe = [file for file in files if file.suffix == SAFETENSORS]
    return safe or [file for file in files if file.suffix in STATE_DICTS]


def _tensors(file: Path) -> Iterator[tuple[str, Any]]:
    if file.suffix == SAFETENSORS:
        yield from _safe(file)
        return
    import torch

    try:
        state = torch.load(str(file), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise Refusal("UnknownFormat", f"{file.name} is no plain state dict: {type(error).__name__}") from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise Refusal("UnknownFormat", f"{file.name} is no plain state dict: it holds more than tensors by name")
    yield from ((str(name), value) for name, value in state.items())


def _safe(file: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt", device="cpu") as opened:
            for name in opened.keys():  # noqa: SIM118  it is no mapping
                yield name, opened.get_tensor(name)
    except SafetensorError as error:
        raise Refusal("UnknownFormat", f"{file.name} cannot be read as safetensors: {error}") from error


def _hex_of(tensor: Any) -> str:
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    data = flat.view(torch.uint8) if flat.numel() else flat
    return hashlib.sha256(data.numpy().tobytes() if flat.numel() else b"").hexdigest()
