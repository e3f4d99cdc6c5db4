"""Archives whose headers, folders and directories are the attack, rather than the files in them."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from slipway_runtime.artefact.archive import ArchiveLimits, unpack
from slipway_runtime.artefact.format import ModelKind, sniff
from slipway_runtime.artefact.zip_directory import MAX_ENTRIES
from slipway_runtime.refusal import Refusal

LIMITS = ArchiveLimits(entries=50, total_bytes=100_000_000)
MEMORY = 48_000_000
"""Bytes that unpacking may take, whatever is in an archive."""
BLOCK = 512
LARGE = 200_000_000


def header(name: str, kind: bytes, size: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def long_header(kind: bytes) -> bytes:
    """A header of hundreds of megabytes, in a fraction of one."""
    return header("x", kind, LARGE) + bytes(LARGE) + header("file", tarfile.REGTYPE, 0)


def many_headers() -> bytes:
    record = b"%d comment=%s\n" % (500_016, b"x" * 500_000)
    one = header("x", tarfile.XGLTYPE, len(record)) + padded(record)
    return b"".join(one + header(f"file{number}", tarfile.REGTYPE, 0) for number in range(60))


def sparse() -> bytes:
    """The old form of holes: a list of them that goes on for as long as the stream does."""
    block = bytearray(header("x", tarfile.GNUTYPE_SPARSE, 0))
    block[482] = 1
    block[148:156] = b"%06o\x00 " % tarfile.calc_chksums(bytes(block))[0]  # type: ignore[attr-defined]
    return bytes(block) + (bytes(504) + b"\x01" + bytes(7)) * 400_000


def sparse_of_pax() -> bytes:
    records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    numbers = (b"9" * 9 + b"\n") + b"1\n" * 50_000_000
    return header("x", tarfile.XHDTYPE, len(records)) + padded(records) + header("f", tarfile.REGTYPE, 9) + numbers


def folders() -> bytes:
    return b"".join(header(f"folder{number}/", tarfile.DIRTYPE, 0) for number in range(100))


def strange(kind: bytes) -> Callable[[], bytes]:
    return lambda: header("x", kind, 0)


@pytest.mark.parametrize(
    "content",
    [
        lambda: long_header(tarfile.XHDTYPE),
        lambda: long_header(tarfile.XGLTYPE),
        lambda: long_header(tarfile.GNUTYPE_LONGNAME),
        lambda: long_header(tarfile.GNUTYPE_LONGLINK),
        many_headers,
        sparse,
        sparse_of_pax,
        folders,
        strange(tarfile.BLKTYPE),
        strange(tarfile.CHRTYPE),
        strange(tarfile.FIFOTYPE),
        strange(tarfile.SYMTYPE),
        strange(tarfile.LNKTYPE),
    ],
    ids=[
        "attributes", "attributes of all", "a long name", "a long link", "many attributes", "holes", "holes of pax",
        "folders", "block device", "character device", "pipe", "link", "hard link",
    ],
)  # fmt: skip
def test_tars_are_refused_before_they_fill_the_memory(tmp_path: Path, content: Callable[[], bytes]) -> None:
    packed = io.BytesIO(gzip.compress(content() + bytes(2 * BLOCK), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="ArtefactUnsafe"):
            unpack(packed, ModelKind.GZIP, tmp_path / "target", LIMITS)
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    ["/etc/x", "../x", "a/../../x", "..", "//x", "a\\..\\x", "C:\\x", "./../x", "a/b/../../../x", "\\\\host\\x"],
)
@pytest.mark.parametrize("kind", [ModelKind.ZIP, ModelKind.TAR])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str, kind: ModelKind) -> None:
    buffer = io.BytesIO()
    if kind is ModelKind.ZIP:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(zipfile.ZipInfo("placeholder-of-this"), b"x")
        # The library would put a name right while it writes.
        length = len("placeholder-of-this")
        buffer = io.BytesIO(buffer.getvalue().replace(b"placeholder-of-this", name.encode().ljust(length, b"/")))
    else:
        buffer.write(header(name, tarfile.REGTYPE, 1) + padded(b"x") + bytes(2 * BLOCK))
    target = tmp_path / "deep" / "target"
    try:
        unpack(buffer, kind, target, LIMITS)
    except Refusal:
        assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert all(path.is_relative_to(target) for path in tmp_path.rglob("*") if path.is_file())


def test_nothing_unpacked_can_be_run_as_somebody_else(tmp_path: Path) -> None:
    member = tarfile.TarInfo("tool")
    member.mode, member.uid, member.size = 0o6777, 0, 1
    packed = io.BytesIO(member.tobuf() + padded(b"x") + bytes(2 * BLOCK))
    unpack(packed, ModelKind.TAR, tmp_path / "target", LIMITS)
    mode = (tmp_path / "target" / "tool").stat().st_mode
    assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR | stat.S_IXOTH)


def test_a_directory_of_a_zip_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(MAX_ENTRIES * 1024 // 60_000 + 1):
            archive.writestr(f"{number}{'x' * 60_000}", b"")
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="ArtefactUnsafe"):
            sniff(path)
        with path.open("rb") as stream, pytest.raises(Refusal, match="ArtefactUnsafe"):
            unpack(stream, ModelKind.ZIP, tmp_path / "target")
        assert tracemalloc.get_traced_memory()[1] < MEMORY
    finally:
        tracemalloc.stop()


def test_headers_of_honest_archives_are_read(tmp_path: Path) -> None:
    """Long names, attributes, folders: what tar writes on any machine."""
    source = tmp_path / "model"
    deep = source / ("d" * 120) / ("ü" * 60)
    deep.mkdir(parents=True)
    (deep / ("f" * 200)).write_bytes(b"weights")
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        packed = tmp_path / f"{number}.tar.gz"
        attributes = {"comment": "x" * 1000} if form == tarfile.PAX_FORMAT else None
        with tarfile.open(packed, "w:gz", format=form, pax_headers=attributes) as archive:
            archive.add(source, "model")
        with packed.open("rb") as stream:
            unpack(stream, ModelKind.GZIP, tmp_path / f"target{number}", LIMITS)
        found = [path.read_bytes() for path in (tmp_path / f"target{number}").rglob("*") if path.is_file()]
        assert found == [b"weights"]
