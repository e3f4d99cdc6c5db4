"""SHA-256 of a model: of a file's bytes, or the canonical digest of a folder."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

from slipway_runtime.refusal import ExitCode, Refusal


def digest_of(path: Path) -> str:
    """Hex digest of the file or folder at ``path``.

    A folder's digest is the SHA-256 over the lines ``<hex of file>  <relative POSIX path>\\n``, sorted by
    path. Raises Refusal for links that lead out of the folder, for sockets and devices, and (exit code
    66) when nothing is there.
    """
    if path.is_dir():
        return hashlib.sha256(folder_lines(path).encode()).hexdigest()
    if not path.exists():
        raise Refusal("ArtefactNotFound", f"there is no model at {path}", ExitCode.ARTEFACT_NOT_FOUND)
    with path.open("rb") as stream:
        return stream_digest(stream)


def stream_digest(stream: io.BufferedReader) -> str:
    """Hex digest of all bytes of an open file, which is rewound afterwards."""
    stream.seek(0)
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
    stream.seek(0)
    return digest


def folder_lines(folder: Path) -> str:
    """The lines whose SHA-256 is the folder's digest: what a signature over a folder signs. Raises Refusal."""
    lines = []
    root = folder.resolve()
    for relative in sorted(_files(root)):
        file = root / relative
        # ConfigMap and Secret volumes are made of links inside the folder; out of it none may lead.
        if not file.resolve().is_relative_to(root):
            raise Refusal("ArtefactUnsafe", f"{relative} is a link that leads out of the model's folder")
        if not file.is_file():
            raise Refusal("ArtefactUnsafe", f"{relative} is neither a file nor a folder")
        with file.open("rb") as stream:
            lines.append(f"{stream_digest(stream)}  {relative}\n")
    return "".join(lines)


def _files(root: Path) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*files, *links]:
            path = Path(folder) / name
            if path.is_dir() and path.resolve().is_relative_to(root):
                continue
            found.append(path.relative_to(root).as_posix())
    return found
