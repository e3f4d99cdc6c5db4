"""The folder of this server to which models are fetched and in which archives are unpacked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slipway_runtime.refusal import Refusal


@dataclass(frozen=True)
class Store:
    """A private folder."""

    root: Path

    def fetch(self, uri: str, sha256: str) -> Path:
        """The model's file or folder on this machine. Raises Refusal."""
        scheme = uri.partition(":")[0]
        raise Refusal("SchemeNotSupported", f"URI scheme {scheme}: not supported yet by this runtime, use file://")

    def unpacked(self, digest: str) -> Path:
        """Where the archive of that digest is (or will be) unpacked."""
        return self.root / "unpacked" / digest
