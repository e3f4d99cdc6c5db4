"""The image table: which local program stands for which container image."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from e2e.sandbox.binaries import cache_folder

REPOSITORY_ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Image:
    """A program that stands for an image: its entry point, default arguments and environment."""

    entrypoint: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    """Tags that exist; empty means any."""


def _python_path(*folders: str) -> str:
    return ":".join(str(REPOSITORY_ROOT / folder) if folder else str(REPOSITORY_ROOT) for folder in folders)


# As in the Dockerfiles. A compiled file beside a handler would change the digest of its folder.
_PYTHON = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}

DEFAULT_IMAGES: Mapping[str, Image] = {
    # One thread a replica: many of them share a small machine.
    "slipway-runtime": Image(
        (sys.executable, "-m", "slipway_runtime"),
        env={"PYTHONPATH": _python_path("runtime_image"), "OMP_NUM_THREADS": "1", **_PYTHON},
    ),
    "slipway-operator": Image(
        (sys.executable, "-m", "slipway.cli"),
        args=("run",),
        env={"PYTHONPATH": _python_path("operator"), "PYTHONUNBUFFERED": "1"},
    ),
    "sandbox-echo": Image(
        (sys.executable, "-m", "e2e.sandbox.node.echo"),
        env={"PYTHONPATH": _python_path(""), "PYTHONUNBUFFERED": "1"},
    ),
    # The real program, without its container.
    "tritonserver": Image(
        (sys.executable, "-m", "e2e.sandbox.triton"),
        env={"PYTHONPATH": _python_path(""), "SLIPWAY_CACHE": str(cache_folder())},
    ),
    "python": Image((sys.executable,), env={"PYTHONUNBUFFERED": "1"}),
    "busybox": Image(("/bin/sh",)),
}


class ImageTable:
    """Images by name without tag."""

    def __init__(self, images: Mapping[str, Image] | None = None) -> None:
        self._images = {**DEFAULT_IMAGES, **(images or {})}

    @classmethod
    def from_file(cls, path: Path) -> ImageTable:
        """Read more images from YAML: a mapping of names to {entrypoint, args, env, tags}; raises ValueError."""
        content = yaml.safe_load(path.read_text()) or {}
        if not isinstance(content, dict):
            raise ValueError(f"{path}: a mapping of image names is wanted")
        return cls({name: _image(f"{path}: {name}", entry) for name, entry in content.items()})

    def find(self, reference: str) -> Image | None:
        """The image of a reference such as `name:tag` or `name@sha256:...`, or None when there is none."""
        name, tag = split_reference(reference)
        image = self._images.get(name)
        if image is None or (image.tags and tag not in image.tags):
            return None
        return image


def split_reference(reference: str) -> tuple[str, str]:
    """Name and tag of an image reference; the tag is `latest` when none is said."""
    name, _, digest = reference.partition("@")
    last = name.rpartition("/")[2]
    if ":" in last:
        name, _, tag = name.rpartition(":")
        return name, tag
    return name, digest or "latest"


def _image(where: str, entry: object) -> Image:
    if not isinstance(entry, dict) or not entry.get("entrypoint"):
        raise ValueError(f"{where}: needs an entrypoint")
    unknown = set(entry) - {"entrypoint", "args", "env", "tags"}
    if unknown:
        raise ValueError(f"{where}: unknown fields {sorted(unknown)}")
    return Image(
        entrypoint=tuple(map(str, entry["entrypoint"])),
        args=tuple(map(str, entry.get("args") or ())),
        env={str(name): str(value) for name, value in (entry.get("env") or {}).items()},
        tags=frozenset(map(str, entry.get("tags") or ())),
    )
