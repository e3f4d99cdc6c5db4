"""The directory at the end of a zip, which is read as a whole by whoever opens one."""

from __future__ import annotations

import zipfile
from typing import IO

from slipway_runtime.refusal import Refusal

MAX_ENTRIES = 20_000
_ENTRY_BYTES = 1024
"""With a name much longer than those of models."""


def check_directory(archive: IO[bytes], entries: int = MAX_ENTRIES) -> None:
    """Refuse (ArtefactUnsafe) a zip whose directory is larger than one of so many entries: it would fill the memory."""
    # There is no public way to the end record without reading the directory.
    record = zipfile._EndRecData(archive)  # type: ignore[attr-defined]
    archive.seek(0)
    if record and record[zipfile._ECD_SIZE] > entries * _ENTRY_BYTES:  # type: ignore[attr-defined]
        raise Refusal("ArtefactUnsafe", f"the archive holds more than {entries} entries, or very long names")
