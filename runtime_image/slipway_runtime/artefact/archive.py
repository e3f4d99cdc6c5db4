"""Unpacking zip and tar archives, member by member checked."""

from __future__ import annotations

import lzma
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.artefact.zip_directory import MAX_ENTRIES, check_directory
from slipway_runtime.refusal import Refusal

_COPY_BYTES = 1024 * 1024
_MOST_EXTENSIONS = 16 * 1024 * 1024
"""Bytes of all long names and attributes of a tar."""
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
_DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,  # an encrypted zip
    ValueError,
    OverflowError,
    MemoryError,
    struct.error,
)


@dataclass(frozen=True)
class ArchiveLimits:
    """How much an archive may hold, unpacked."""

    entries: int = MAX_ENTRIES
    total_bytes: int = 200 * 1024**3
    ratio: int = 200
    """Unpacked bytes for one packed byte; weights hardly compress, bombs do. A small archive may exceed it."""
    free_bytes: int = 64 * 1024**2
    """Unpacked bytes to which the ratio does not apply."""


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    stream: IO[bytes]


def unpack(archive: IO[bytes], kind: ModelKind, target: Path, limits: ArchiveLimits | None = None) -> None:
    """Unpack an open zip or tar archive into ``target``, which must not exist yet.

    Only files and folders are taken. Raises Refusal (ArtefactUnsafe) for absolute paths, ``..``, links,
    devices, names that come twice, and for more or larger entries than the limits allow; then nothing is left.
    """
    bounds = limits or ArchiveLimits()
    packed = archive.seek(0, 2)
    archive.seek(0)
    largest = min(bounds.total_bytes, max(bounds.free_bytes, packed * bounds.ratio))
    target.mkdir(parents=True)
    try:
        members = _zip_members(archive, bounds) if kind is ModelKind.ZIP else _tar_members(archive)
        with closing(members):
            _write_all(members, target, bounds.entries, largest)
    except _DAMAGE as error:
        shutil.rmtree(target, ignore_errors=True)
        raise Refusal("NotAModel", f"the archive cannot be unpacked: {type(error).__name__}") from error
    except Refusal:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _write_all(members: Generator[_Member | None, None, None], target: Path, entries: int, largest: int) -> None:
    seen: set[str] = set()
    left = largest
    for number, member in enumerate(members):
        if number == entries:
            raise Refusal("ArtefactUnsafe", f"the archive holds more than {entries} entries")
        if member is None:
            continue
        path = target / safe_path(member.name)
        key = path.as_posix().casefold()
        if key in seen:
            raise Refusal("ArtefactUnsafe", "the archive holds a name twice")
        seen.add(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            # The size in the archive's directory is a claim; only what comes out counts.
            while chunk := member.stream.read(_COPY_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise Refusal("ArtefactUnsafe", f"the archive unpacks to more than {largest} bytes")
                file.write(chunk)


def safe_path(name: str) -> PurePosixPath:
    """The relative path ``name`` given by somebody else. Raises Refusal (ArtefactUnsafe) when it leads elsewhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\x00" in name or not path.parts:
        raise Refusal("ArtefactUnsafe", "the artefact holds a path that leads out of its folder")
    return path


def _zip_members(archive: IO[bytes], limits: ArchiveLimits) -> Generator[_Member | None, None, None]:
    """The files of a zip; None for a folder."""
    check_directory(archive, limits.entries)
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            kind = entry.external_attr >> 28
            if entry.is_dir():
                safe_path(entry.filename)
                yield None
                continue
            if kind not in (0, 0o10):
                raise _no_file()
            with opened.open(entry) as stream:
                yield _Member(entry.filename, entry.file_size, stream)


class _Header(tarfile.TarInfo):
    """A member. Its long names and attributes are bounded: the library reads them as a whole, however long they are."""

    def _proc_member(self, archive: _Tar) -> tarfile.TarInfo:
        if self.type in _EXTENSIONS:
            archive.extension_bytes += max(self.size, 0)
            if archive.extension_bytes > _MOST_EXTENSIONS:
                raise Refusal("ArtefactUnsafe", "the archive holds headers that are too large")
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _no_file()
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]

    def _sparse(self, *_: object) -> None:
        raise _no_file()

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _sparse


class _Tar(tarfile.TarFile):
    tarinfo = _Header
    extension_bytes = 0


def _no_file() -> Refusal:
    return Refusal("ArtefactUnsafe", "the archive holds a link or a device")


def _tar_members(archive: IO[bytes]) -> Generator[_Member | None, None, None]:
    """The files of a tar; None for a folder."""
    with _Tar.open(fileobj=archive, mode="r|*") as opened:
        for entry in opened:
            if entry.isdir():
                if PurePosixPath(entry.name).parts:
                    safe_path(entry.name)
                yield None
                continue
            stream = opened.extractfile(entry) if entry.isreg() and not entry.issparse() else None
            if stream is None:
                raise _no_file()
            yield _Member(entry.name, entry.size, stream)
