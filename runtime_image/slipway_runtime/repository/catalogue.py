"""The models that a server knows how to load: those it was told, and those in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from slipway_runtime import journal
from slipway_runtime.artefact import mlflow, triton
from slipway_runtime.artefact.description import CONFIG_NAME
from slipway_runtime.artefact.location import local_path
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.repository.naming import FIRST_VERSION, RESERVED_NAMES, VERSION_FORM
from slipway_runtime.settings import ModelSettings

_SUFFIXES = (".pt", ".pt2", ".pth", ".onnx", ".safetensors", ".mar", ".zip", ".tar", ".gz", ".tgz")
"""What a folder with a model in it has, rather than with versions."""

Fingerprint = tuple[tuple[str, int, int, int], ...]
"""Path, size, time of the last change and inode of every file."""


class Catalogue:
    """Settings by name. What a request has loaded from elsewhere takes the place of what was there before."""

    def __init__(self, told: Sequence[ModelSettings], folder: Path | None, template: ModelSettings) -> None:
        """``template`` holds what the models of the ``folder`` have in common."""
        self._told = tuple(told)
        self._folder = folder
        self._instead: dict[tuple[str, str], ModelSettings] = {}
        self.template = template

    def entries(self) -> dict[str, tuple[ModelSettings, ...]]:
        """All models, each with its versions. Reads the folder; raises Refusal when it cannot be read."""
        found: dict[str, dict[str, ModelSettings]] = {}
        for one in [] if self._folder is None else scan(self._folder, self.template):
            found.setdefault(one.name, {})[one.version] = one
        for name in dict.fromkeys(one.name for one in self._told):
            found[name] = {one.version: one for one in self._told if one.name == name}
        for (name, version), one in self._instead.items():
            versions = found.setdefault(name, {})
            versions.pop(version, None)
            versions[one.version] = one
        return {name: tuple(versions.values()) for name, versions in found.items()}

    def remember(self, model: ModelSettings, instead_of: str) -> None:
        """From now on the model stands where the version ``instead_of`` of that name was."""
        name = model.name
        # It may itself have come instead of another.
        first = (old for (of, old), one in self._instead.items() if (of, one.version) == (name, instead_of))
        self._instead[name, next(first, instead_of)] = model


def scan(folder: Path, template: ModelSettings) -> Iterator[ModelSettings]:
    """The models of a folder: one subfolder each, in which subfolders are versions. Raises Refusal."""
    try:
        places = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    except OSError as error:
        text = f"the folder of models cannot be read: {error.strerror}"
        raise Refusal("RepositoryNotFound", text, ExitCode.ARTEFACT_NOT_FOUND) from error
    for place in places:
        if place.name in RESERVED_NAMES:
            journal.record("model-skipped", "warning", model=place.name, text="the name is reserved")
            continue
        yield from _versions(place, replace(template, name=place.name, version=FIRST_VERSION))


def _versions(place: Path, model: ModelSettings) -> Iterator[ModelSettings]:
    if triton.fits(place):
        for version in triton.served_versions(place):
            yield replace(model, version=version, folder_version=version, uri=place.as_uri())
        return
    visible = sorted(entry for entry in place.iterdir() if not entry.name.startswith("."))
    folders = [entry for entry in visible if entry.is_dir()]
    one_model = (place / CONFIG_NAME).is_file() or mlflow.fits(place)
    if one_model or not folders or any(entry.suffix in _SUFFIXES for entry in visible):
        # An empty folder is a model that is about to come.
        if visible:
            yield replace(model, uri=place.as_uri())
        return
    for entry in folders:
        if VERSION_FORM.fullmatch(entry.name):
            yield replace(model, version=entry.name, uri=entry.as_uri())
        else:
            text = f"'{entry.name}' is no version: letters, digits, . _ -"
            journal.record("model-skipped", "warning", model=place.name, text=text)


def fingerprint(uri: str) -> Fingerprint | None:
    """What tells whether the files at a local URI have changed; None where there are none, or they are elsewhere."""
    path = local_path(uri)
    if path is None:
        return None
    try:
        if path.is_file():
            return (_mark(path, path),)
        files = sorted(one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
        return tuple(_mark(one, path) for one in files) or None
    except OSError:
        return None


def _mark(file: Path, root: Path) -> tuple[str, int, int, int]:
    state = file.stat()
    return str(file.relative_to(root)), state.st_size, state.st_mtime_ns, state.st_ino
