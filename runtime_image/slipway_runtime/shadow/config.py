"""What the operator wants repeated: a small JSON file that may appear, change and vanish while the server runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from slipway_runtime import journal


class Comparator(StrEnum):
    """How two answers are compared; see ``comparison``."""

    AUTO = "Auto"
    EXACT = "Exact"
    ALL_CLOSE = "AllClose"
    ARG_MAX = "ArgMax"
    TOP_K = "TopK"


class ShadowConfig(msgspec.Struct, frozen=True):
    """Where to and how often requests are repeated. ``percent`` is the share of requests, 0 to 100."""

    target: str
    """Address of the candidate's server, ``http://host:port``."""
    candidate: str
    """Revision that answers there; a label of the counts."""
    percent: float
    compare: Comparator = Comparator.AUTO
    stable: str = ""
    """Revision whose servers are meant; all, where it is empty. The file is seen by the candidate's servers as well."""


class ShadowFile:
    """Reads the file again whenever asked; says once what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw = b""
        self._config: ShadowConfig | None = None

    def read(self) -> ShadowConfig | None:
        """The present configuration; None while there is no (valid) file: then nothing is repeated."""
        try:
            raw = self._path.read_bytes()
        except OSError:
            raw = b""
        if raw != self._raw:
            self._raw = raw
            self._config = _parse(raw) if raw else None
        return self._config


def _parse(raw: bytes) -> ShadowConfig | None:
    try:
        config = msgspec.json.decode(raw, type=ShadowConfig)
    except msgspec.MsgspecError as error:
        journal.record("shadow-config", "warning", cause=str(error))
        return None
    if not config.target.startswith("http://") or not 0 < config.percent <= 100:
        journal.record("shadow-config", "warning", cause="target must be http://host:port, percent above 0 up to 100")
        return None
    return config
