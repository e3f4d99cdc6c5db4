"""What has to be fetched: files with the requests that bring them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from slipway_runtime.refusal import Refusal

MAX_LISTED = 100_000
"""Entries of a listing, neighbours of the artefact among them."""
MAX_PAGES = 1000
T = TypeVar("T")


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

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not (self.size is None or (type(self.size) is int and self.size >= 0)):
            raise ValueError("a file has a path, and a size of 0 or more")


@dataclass(frozen=True)
class Listing:
    """All files of an artefact; ``folder`` says whether it is one even with a single file."""

    files: tuple[RemoteFile, ...]
    folder: bool


def bounded(entries: Iterable[T]) -> Iterator[T]:
    """The entries of a listing. Raises Refusal for one that has no end."""
    for number, entry in enumerate(entries):
        if number == MAX_LISTED:
            raise Refusal("ArtefactTooLarge", f"the listing has more than {MAX_LISTED} entries")
        yield entry


def pages() -> Iterator[int]:
    """Counts the pages of a listing. Raises Refusal for one that has no end."""
    yield from range(MAX_PAGES)
    raise Refusal("ArtefactTooLarge", f"the listing has more than {MAX_PAGES} pages")
