"""``slipway-runtime fetch``: a verified private copy of a model for another model server in the same pod.

The copy is made first and hashed then, so that what the other server reads is what was verified, whatever happens to
the source meanwhile. Nothing but archives is parsed here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from slipway_runtime import journal
from slipway_runtime.artefact.archive import unpack
from slipway_runtime.artefact.arrival import store_of, trust_of
from slipway_runtime.artefact.description import read_text
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.artefact.format import ARCHIVES, ModelKind, sniff
from slipway_runtime.artefact.location import check, expected_digest, local_path, only_folder
from slipway_runtime.artefact.triton import CONFIG_FILE, parse_text_format
from slipway_runtime.fetch.store import Store
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Access

_WORK = ".slipway"
"""Subfolder of the target for what is under way; servers pass over hidden folders."""
_BINARY_ERRORS = (OSError, shutil.Error)


class Layout(StrEnum):
    """How the model is laid out for the server that reads it."""

    PLAIN = "plain"
    """``TARGET/NAME`` is the model's folder, or holds its file."""
    TRITON = "triton"
    """``TARGET`` is a Triton model repository with a model called ``NAME``."""


@dataclass(frozen=True)
class Delivery:
    """What is to be fetched, and where it is to lie."""

    uri: str
    target: Path
    name: str
    sha256: str = ""
    layout: Layout = Layout.PLAIN
    access: Access = field(default_factory=Access)


def deliver(delivery: Delivery) -> str:
    """Fetch, verify and lay out the model; gives its digest. Raises Refusal, and then leaves no model behind."""
    expected = expected_digest(delivery.sha256)
    _clear(delivery.target)
    work = delivery.target / _WORK
    store = store_of(delivery.access, work)
    trust = trust_of(delivery.access, store)
    try:
        local = local_path(delivery.uri)
        content = _copied(local, work / "copy") if local else store.fetch(delivery.uri, expected)
        digest = digest_of(content)
        known = check(expected, digest, trust) or bool(expected)
        model = _opened(content, store, digest)
        if delivery.layout is Layout.TRITON:
            _as_repository(model, delivery.target, delivery.name, verified=known or local is not None)
        else:
            _as_folder(model, content.name if local is None else local.name, delivery.target / delivery.name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    journal.record("delivered", sha256=digest, layout=str(delivery.layout))
    return digest


def _clear(target: Path) -> None:
    """Begin anew: a pod's volume outlives its init container's first try."""
    target.mkdir(parents=True, exist_ok=True)
    for entry in target.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _copied(source: Path, copy: Path) -> Path:
    """A copy of a local file or folder; links inside a folder become what they lead to."""
    if not source.exists():
        raise Refusal("ArtefactNotFound", f"there is no model at {source}", ExitCode.ARTEFACT_NOT_FOUND)
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not source.is_dir():
            return Path(shutil.copyfile(source, copy))
        # Refuses links that lead out of the folder before anything is copied.
        digest_of(source)
        return Path(shutil.copytree(source, copy, copy_function=shutil.copyfile))
    except _BINARY_ERRORS as error:
        raise Refusal("NoSpace", f"the model cannot be copied: {error}", ExitCode.INTERNAL) from error


def _opened(content: Path, store: Store, digest: str) -> Path:
    """An archive's only folder, or what is no archive as it stands."""
    if content.is_dir():
        return content
    kind = sniff(content)
    if kind not in ARCHIVES:
        return content
    folder = store.unpacked(digest)
    with content.open("rb") as stream:
        unpack(stream, kind, folder)
    return only_folder(folder)


def _as_folder(model: Path, name: str, place: Path) -> None:
    if model.is_dir():
        model.rename(place)
        return
    place.mkdir()
    model.rename(place / name)


def _as_repository(model: Path, target: Path, name: str, *, verified: bool) -> None:
    """One model's folder, or a folder of several, one of which has the name that clients ask for."""
    if not model.is_dir():
        _as_onnx(model, target / name / "1")
        return
    if not verified and next(model.rglob("*.py"), None) is not None:
        raise Refusal("ArtefactUnverified", "the model brings Python code: give its sha256 or a signature")
    if _is_model(model):
        _check_name(model, name)
        model.rename(target / name)
        return
    models = sorted(entry for entry in model.iterdir() if entry.is_dir() and _is_model(entry))
    if name not in (entry.name for entry in models):
        found = ", ".join(entry.name for entry in models) or "none"
        raise Refusal("NotAModel", f"the repository has no model {name}, which clients ask for; its models: {found}")
    for entry in models:
        _check_name(entry, entry.name)
        entry.rename(target / entry.name)


def _as_onnx(model: Path, place: Path) -> None:
    """The one format for which Triton needs no configuration: it reads inputs and outputs from the file."""
    if sniff(model) is not ModelKind.ONNX:
        text = "Triton wants a model's folder (config.pbtxt and numbered versions), a repository, or an ONNX file"
        raise Refusal("NotAModel", text)
    place.mkdir(parents=True)
    model.rename(place / "model.onnx")


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG_FILE).is_file() or next(_versions(folder), None) is not None


def _versions(folder: Path) -> Iterator[Path]:
    return (entry for entry in folder.iterdir() if entry.is_dir() and entry.name.isdigit())


def _check_name(folder: Path, name: str) -> None:
    """Triton refuses a model whose configuration has another name than its folder, in words that help nobody."""
    config = folder / CONFIG_FILE
    if not config.is_file():
        return
    (said, *_) = parse_text_format(read_text(config)).get("name", [""])
    if said not in ("", name):
        text = f"{CONFIG_FILE} names the model {said}, clients will ask for {name}: leave the field name out"
        raise Refusal("BadModelConfig", text)
