"""The folder of this server to which models are fetched and in which archives are unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from slipway_runtime import journal
from slipway_runtime.artefact.archive import safe_path
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.fetch.client import Client
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.listing import Listing
from slipway_runtime.fetch.sources import list_files
from slipway_runtime.fetch.transfer import FetchLimits, Transfer
from slipway_runtime.refusal import ExitCode, Refusal


def default_folder() -> Path:
    """``$SLIPWAY_MODEL_DIR``, or a folder below that for temporary files."""
    said = os.environ.get("SLIPWAY_MODEL_DIR")
    if said:
        return Path(said)
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:
        # Nothing can be written anywhere: many models need no folder, and others say what they miss.
        temporary = "/tmp"  # noqa: S108 - only its name; what is put there is made by the store
    return Path(temporary) / "slipway-models"


@dataclass(frozen=True)
class Store:
    """A private folder, what may be fetched into it, and with which credentials."""

    root: Path = field(default_factory=default_folder)
    credentials: Credentials = field(default_factory=Credentials)
    limits: FetchLimits = field(default_factory=FetchLimits)
    pause: Callable[[float], None] = time.sleep

    def fetch(self, uri: str, sha256: str) -> Path:
        """The model's file or folder on this machine. Raises Refusal.

        With a digest, what an earlier process has fetched is used again if it still has that digest.
        """
        key = hashlib.sha256(f"{uri}\n{sha256}".encode()).hexdigest()[:32]
        place = self.root / "fetched" / key
        content = place / "content"
        if content.exists():
            if sha256 and digest_of(content) == sha256:
                journal.record("fetched-before", sha256=sha256)
                return content
            _remove(content)
        client = Client()
        try:
            listing = list_files(uri, client, self.credentials)
        except urllib3.exceptions.HTTPError as error:
            text = f"the source cannot be reached: {type(error).__name__}"
            raise Refusal("FetchFailed", text, ExitCode.INTERNAL) from error
        self._check(listing)
        transfer = Transfer(client, self.limits, self.pause)
        _bring(listing, transfer, place / "coming", content, known=bool(sha256))
        return content

    def _check(self, listing: Listing) -> None:
        if not listing.files:
            raise Refusal("ArtefactNotFound", "there is no model at the given URI", ExitCode.ARTEFACT_NOT_FOUND)
        if len(listing.files) > self.limits.max_files:
            raise Refusal("ArtefactTooLarge", f"the artefact has more than {self.limits.max_files} files")
        total = sum(file.size or 0 for file in listing.files)
        if total > self.limits.max_bytes:
            raise Refusal("ArtefactTooLarge", f"the artefact has {total} bytes, more than {self.limits.max_bytes}")
        self.root.mkdir(parents=True, exist_ok=True)
        if total > shutil.disk_usage(self.root).free:
            raise Refusal("NoSpace", f"the artefact has {total} bytes, so many are not free", ExitCode.INTERNAL)

    def unpacked(self, digest: str) -> Path:
        """Where the archive of that digest is (or will be) unpacked."""
        return self.root / "unpacked" / digest


def _bring(listing: Listing, transfer: Transfer, coming: Path, content: Path, *, known: bool) -> None:
    """Fetch everything into ``coming`` and move it to ``content``.

    Files that an interrupted fetch left whole are kept where a digest will tell whether they still fit together.
    """
    begun = time.monotonic()
    for file in listing.files:
        target = coming / safe_path(file.path)
        if not known or not target.exists() or target.stat().st_size != file.size:
            transfer.bring(file, target)
    seconds = round(time.monotonic() - begun, 3)
    journal.record("fetched", files=len(listing.files), bytes=transfer.received, seconds=seconds)
    if listing.folder:
        coming.rename(content)
    else:
        (coming / safe_path(listing.files[0].path)).rename(content)
        _remove(coming)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
