"""From a URI to a verified model on disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slipway_runtime.artefact.digest import digest_of, stream_digest
from slipway_runtime.artefact.format import ModelKind, identify, sniff
from slipway_runtime.refusal import ExitCode, Refusal

_HEX64 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Artefact:
    """A model file whose digest was checked: ``path`` stays readable while the artefact is open."""

    path: Path
    kind: ModelKind
    digest: str


def local_path(uri: str) -> Path:
    """The path of a ``file://`` URI or of a plain absolute path.

    Raises Refusal for other schemes: fetching is not part of this runtime yet.
    """
    parts = urlsplit(uri)
    if parts.scheme == "" and uri.startswith("/"):
        return Path(uri)
    if parts.scheme != "file":
        scheme = parts.scheme or "none"
        raise Refusal("SchemeNotSupported", f"URI scheme {scheme}: not supported yet by this runtime, use file://")
    if parts.netloc not in ("", "localhost"):
        raise Refusal("SchemeNotSupported", "a file:// URI must not name a host: write file:///path")
    return Path(unquote(parts.path))


@contextmanager
def opened(uri: str, sha256: str) -> Iterator[Artefact]:
    """The verified artefact at ``uri``. The digest is compared before any parser sees a byte.

    A file is hashed through a descriptor that stays open, and loaded through the same descriptor, so
    that a file put in its place between check and load is not loaded. ``sha256`` may carry the prefix
    ``sha256:``; empty means unchecked. Raises Refusal.
    """
    expected = _expected_digest(sha256)
    path = local_path(uri)
    if path.is_dir():
        digest = digest_of(path)
        _compare(expected, digest)
        file = _model_file(path)
        yield Artefact(file, identify(file), digest)
        return
    if not path.is_file():
        raise Refusal("ArtefactNotFound", "there is no model at the given URI", ExitCode.ARTEFACT_NOT_FOUND)
    with path.open("rb") as stream:
        digest = stream_digest(stream)
        _compare(expected, digest)
        held = Path(f"/proc/self/fd/{stream.fileno()}")
        file = held if held.exists() else path
        yield Artefact(file, identify(file), digest)


def _expected_digest(text: str) -> str:
    expected = text.strip().lower().removeprefix("sha256:")
    if expected and not _HEX64.fullmatch(expected):
        raise Refusal("BadDigest", "--sha256 must be 64 hexadecimal digits", ExitCode.BAD_ARGUMENTS)
    return expected


def _compare(expected: str, actual: str) -> None:
    if expected and expected != actual:
        raise Refusal("DigestMismatch", f"expected sha256 {expected}, the model has sha256 {actual}")


def _model_file(folder: Path) -> Path:
    """The one model in a folder, known by its content."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    models = [path for path in files if sniff(path) in (ModelKind.TORCHSCRIPT, ModelKind.TORCH_EXPORT)]
    preferred = [path for path in models if path.stem == "model"]
    chosen = preferred if len(preferred) == 1 else models
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(path.name for path in (models or files)[:10]) or "nothing"
    if models:
        raise Refusal("AmbiguousModel", f"the folder holds several models ({names}); name one of them model.pt")
    raise Refusal("NotAModel", f"the folder holds no TorchScript or torch.export program; found: {names}")
