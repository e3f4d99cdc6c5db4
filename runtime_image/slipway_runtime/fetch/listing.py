"""What has to be fetched: files with the requests that bring them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """A GET request."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RemoteFile:
    """A file of the artefact.

    ``path`` is relative to the artefact's folder. ``locate`` gives a fresh request for every try, since signed
    URLs and tokens run out. ``size`` in bytes and ``sha256`` are None and empty where the source does not tell.
    """

    path: str
    locate: Callable[[], Request]
    size: int | None = None
    sha256: str = ""


@dataclass(frozen=True)
class Listing:
    """All files of an artefact; ``folder`` says whether it is one even with a single file."""

    files: tuple[RemoteFile, ...]
    folder: bool
