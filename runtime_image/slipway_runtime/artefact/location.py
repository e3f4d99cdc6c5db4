"""From a URI to a verified model on disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from slipway_runtime.artefact.archive import unpack
from slipway_runtime.artefact.description import Description
from slipway_runtime.artefact.digest import digest_of, stream_digest
from slipway_runtime.artefact.format import ARCHIVES, ModelKind, identify, sniff
from slipway_runtime.artefact.layout import describe
from slipway_runtime.artefact.trust import Trust, verify
from slipway_runtime.fetch.store import Store
from slipway_runtime.refusal import ExitCode, Refusal

_HEX64 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Artefact:
    """A model whose digest was checked: ``path`` stays readable while the artefact is open.

    ``signed`` says that its signature was verified, ``allow_pickle`` that it may be unpickled, ``verified``
    that its content was told beforehand (by digest or signature), ``fetched`` that it came over the network.
    """

    path: Path
    kind: ModelKind
    digest: str
    description: Description
    signed: bool = False
    allow_pickle: bool = False
    verified: bool = False
    fetched: bool = False


def local_path(uri: str) -> Path | None:
    """The path of a ``file://`` URI or of a plain absolute path; None for the URI of something to fetch.

    Raises Refusal for a file URI with a host, and for what is no URI.
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise Refusal("SchemeNotSupported", "the URI cannot be read") from error
    if parts.scheme == "" and uri.startswith("/"):
        return Path(uri)
    if parts.scheme == "":
        raise Refusal("SchemeNotSupported", "the URI has no scheme: write file:///path")
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise Refusal("SchemeNotSupported", "a file:// URI must not name a host: write file:///path")
    return Path(unquote(parts.path))


@contextmanager
def opened(
    uri: str, sha256: str, trust: Trust | None = None, store: Store | None = None, folder_version: str = ""
) -> Iterator[Artefact]:
    """The verified artefact at ``uri``. Digest and signature are checked before any parser sees a byte.

    A file is hashed through a descriptor that stays open, and loaded through the same descriptor, so
    that a file put in its place between check and load is not loaded. ``sha256`` may carry the prefix
    ``sha256:``; empty means unchecked. What has to be fetched goes to ``store``. ``folder_version`` is one of several
    versions in a folder of Triton's layout; empty means the newest. Raises Refusal.
    """
    expected = expected_digest(sha256)
    asked = trust or Trust()
    local = local_path(uri)
    place = store or Store()
    path = local or place.fetch(uri, expected)
    if path.is_dir():
        digest = digest_of(path)
        signed = check(expected, digest, asked)
        found = _of_description(describe(path, folder_version), digest)
        yield _judged(found, asked, signed, bool(expected), local is None)
        return
    if not path.is_file():
        raise Refusal("ArtefactNotFound", f"there is no model at {path}", ExitCode.ARTEFACT_NOT_FOUND)
    with path.open("rb") as stream:
        digest = stream_digest(stream)
        signed = check(expected, digest, asked)
        found = _of_file(stream, path, digest, place)
        yield _judged(found, asked, signed, bool(expected), local is None)


def check(expected: str, digest: str, trust: Trust) -> bool:
    """Whether the model of that digest is signed. Raises Refusal for another digest or signature than asked for."""
    _compare(expected, digest)
    return verify(trust, digest)


def _judged(artefact: Artefact, trust: Trust, signed: bool, expected: bool, fetched: bool) -> Artefact:
    """Python code from elsewhere runs only if somebody said beforehand which code that is."""
    if artefact.description.code is not None and fetched and not (signed or expected):
        raise Refusal("ArtefactUnverified", "the model brings Python code: give its sha256 or a signature")
    return replace(
        artefact,
        signed=signed,
        allow_pickle=signed and trust.allow_pickle,
        verified=signed or expected,
        fetched=fetched,
    )


def _of_description(description: Description, digest: str) -> Artefact:
    return Artefact(description.file, description.kind, digest, description)


def _of_file(stream: IO[bytes], path: Path, digest: str, store: Store) -> Artefact:
    held = Path(f"/proc/self/fd/{stream.fileno()}")
    file = held if held.exists() else path
    kind = sniff(file)
    if kind in ARCHIVES:
        folder = store.unpacked(digest)
        if not folder.exists():
            # By a name of its own until it is whole: a process that is killed must leave nothing to be trusted.
            fresh = folder.with_name(f"{digest}.coming")
            shutil.rmtree(fresh, ignore_errors=True)
            unpack(stream, kind, fresh)
            fresh.rename(folder)
        return _of_description(describe(only_folder(folder)), digest)
    kind = identify(file)
    return Artefact(file, kind, digest, Description(kind, file))


def only_folder(folder: Path) -> Path:
    """Archives often hold one folder with everything in it."""
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def expected_digest(text: str) -> str:
    """The digest asked for in hexadecimal digits; empty for none. Raises Refusal."""
    expected = text.strip().lower().removeprefix("sha256:")
    if expected and not _HEX64.fullmatch(expected):
        raise Refusal("BadDigest", "--sha256 must be 64 hexadecimal digits", ExitCode.BAD_ARGUMENTS)
    return expected


def _compare(expected: str, actual: str) -> None:
    if expected and expected != actual:
        raise Refusal("DigestMismatch", f"expected sha256 {expected}, the model has sha256 {actual}")
