"""Settings and credentials of storage: from a mounted Secret first, from the environment otherwise."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path

from slipway_runtime.refusal import ExitCode, Refusal

MAX_SECRET_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Credentials:
    """Keys are those of the environment of the usual clients, e.g. ``AWS_ACCESS_KEY_ID``; a Secret's keys are files."""

    folder: Path | None = None
    by_host_only: bool = False
    """Give only what is meant for a host by its name: the user did not name the host that is to be asked."""

    def get(self, *names: str) -> str:
        """The first of the names that is set; empty if none is."""
        for name in names:
            value = self._file_text(name) or os.environ.get(name, "")
            if value:
                return value.strip()
        return ""

    def own(self, name: str) -> str:
        """A value of the Secret alone, for the host that the user named."""
        return "" if self.by_host_only else self._file_text(name).strip()

    def path(self, *names: str) -> Path | None:
        """The file of the Secret with one of these names."""
        for name in names:
            if self.folder is not None and (self.folder / name).is_file():
                return self.folder / name
        return None

    def basic(self, host: str) -> str:
        """``user:password`` in base64 for a host, from a docker configuration in the Secret; empty if there is none."""
        file = self.path(".dockerconfigjson", "config.json")
        if file is None:
            return ""
        try:
            entry = json.loads(file.read_text())["auths"].get(host) or {}
            if entry.get("auth"):
                return str(entry["auth"])
            pair = f"{entry['username']}:{entry['password']}" if entry else ""
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            text = f"{file.name} in the storage secret is no docker configuration"
            raise Refusal("BadStorageSecret", text, ExitCode.BAD_ARGUMENTS) from error
        return base64.b64encode(pair.encode()).decode() if pair else ""

    def _file_text(self, name: str) -> str:
        file = self.path(name)
        if file is None:
            return ""
        return file.read_bytes()[:MAX_SECRET_BYTES].decode("utf-8", "replace")
