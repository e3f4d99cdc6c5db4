"""Bringing one file to disk: streaming, bounded, resumed after a break, tried again, with progress in the log."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from slipway_runtime import journal
from slipway_runtime.fetch.client import Client, Response, check_status, whole_number
from slipway_runtime.fetch.listing import RemoteFile, Request
from slipway_runtime.refusal import ExitCode, Refusal

_CHUNK = 1024 * 1024
_PARTIAL, _OK, _RANGE_INVALID = 206, 200, 416
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_PAUSE = 30.0
_PROGRESS_SECONDS = 10.0


@dataclass(frozen=True)
class FetchLimits:
    """Bounds of one artefact. ``tries`` counts tries in a row that brought nothing."""

    max_bytes: int = 100 * 1024**3
    max_files: int = 10_000
    tries: int = 5


class _Passing(Exception):  # noqa: N818 - a reason to try again
    """A failure that may pass; ``pause`` in seconds is what the server asked for."""

    def __init__(self, text: str, pause: float = 0.0) -> None:
        super().__init__(text)
        self.pause = pause


@dataclass
class Transfer:
    """The transfer of one artefact. ``pause`` waits for the given seconds between tries."""

    client: Client
    limits: FetchLimits
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    received: int = field(default=0, init=False)
    _logged: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._logged = self.clock()

    def bring(self, file: RemoteFile, target: Path) -> None:
        """Fetch ``file`` to ``target``. Raises Refusal.

        What has come is kept beside the target as ``.part`` with the server's validator, and a later try, also of
        a later process, goes on from there if the server still has the same file.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        failures = 0
        while True:
            before = _size(part)
            try:
                self._attempt(file, part)
                break
            except (urllib3.exceptions.HTTPError, OSError, _Passing) as error:
                failures = 1 if _size(part) > before else failures + 1
                journal.record(
                    "fetch-interrupted", "warning", file=file.path, received=_size(part), cause=type(error).__name__
                )
                if failures >= self.limits.tries:
                    text = f"{file.path}: {failures} tries in a row failed, the last with {type(error).__name__}"
                    raise Refusal("FetchFailed", text, ExitCode.INTERNAL) from error
                self.pause(max(getattr(error, "pause", 0.0), random.uniform(0.5, 1.0) * 2 ** (failures - 1)))  # noqa: S311
        self._finish(file, part, target)

    def _attempt(self, file: RemoteFile, part: Path) -> None:
        request = file.locate()
        have = _size(part)
        validator = _validator_file(part).read_text() if have and _validator_file(part).exists() else ""
        headers = dict(request.headers)
        if have and validator:
            headers |= {"Range": f"bytes={have}-", "If-Range": validator}
        with self.client.get(request.url, headers) as response:
            if response.status in _PASSING:
                raise _Passing(f"status {response.status}", _retry_after(response))
            if response.status == _RANGE_INVALID:
                part.unlink()
                raise _Passing("the server has less than was received")
            if response.status != _PARTIAL:
                check_status(response, request.url)
            resumed = response.status == _PARTIAL
            if resumed and not (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-"):
                part.unlink(missing_ok=True)
                raise _Passing("the server gave another range than asked for")
            self._stream(file, response, part, have if resumed else 0)

    def _stream(self, file: RemoteFile, response: Response, part: Path, have: int) -> None:
        announced = whole_number(response.headers.get("Content-Length"))
        total = file.size if announced is None else have + announced
        self._check_size(file, total or 0)
        _remember_validator(part, response)
        before = self.received
        with part.open("ab" if have else "wb") as stream:
            while chunk := response.read(_CHUNK):
                stream.write(chunk)
                have += len(chunk)
                self._check_size(file, have)
                self._progress(file, have, total)
        if total is not None and have < total:
            raise _Passing("the connection ended early")
        self.received = before + have

    def _check_size(self, file: RemoteFile, size: int) -> None:
        if self.received + size > self.limits.max_bytes:
            raise Refusal("ArtefactTooLarge", f"{file.path}: the artefact has more than {self.limits.max_bytes} bytes")

    def _progress(self, file: RemoteFile, have: int, total: int | None) -> None:
        now = self.clock()
        if now - self._logged >= _PROGRESS_SECONDS:
            self._logged = now
            journal.record("fetching", file=file.path, received=have, total=total)

    def _finish(self, file: RemoteFile, part: Path, target: Path) -> None:
        _validator_file(part).unlink(missing_ok=True)
        if file.sha256:
            with part.open("rb") as stream:
                actual = hashlib.file_digest(stream, "sha256").hexdigest()
            if actual != file.sha256:
                part.unlink()
                text = f"{file.path}: the source names sha256 {file.sha256}, what came has {actual}"
                raise Refusal("DigestMismatch", text)
        part.rename(target)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.validator")


def _remember_validator(part: Path, response: Response) -> None:
    """Only a strong validator proves that the bytes to come belong to the bytes that are here."""
    etag = response.headers.get("ETag") or ""
    place = _validator_file(part)
    if etag and not etag.startswith("W/"):
        place.write_text(etag)
    else:
        place.unlink(missing_ok=True)


def _retry_after(response: Response) -> float:
    return min(float(whole_number(response.headers.get("Retry-After")) or 0), _MAX_PAUSE)


def plain(url: str, **headers: str) -> Callable[[], Request]:
    """A request that stays the same for every try."""
    request = Request(url, headers)
    return lambda: request
