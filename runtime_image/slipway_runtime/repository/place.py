"""A model's place in the repository: what serves there, what served before, and why the last load failed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slipway_runtime.repository.source import Source
from slipway_runtime.serving.service import ModelService, Phase

_NUMBER = re.compile(r"(\d+)")


@dataclass(frozen=True, eq=False)
class Kept:
    """A model that was replaced, and where it came from."""

    service: ModelService
    source: Source | None


@dataclass(eq=False)
class Place:
    """One version of a model that is served, or should be.

    ``required``: the server is not ready without it. ``source`` is where the model came from; ``kept`` is the one
    that was replaced last and can still be gone back to. ``failure`` says why the last load failed.
    """

    service: ModelService
    required: bool = True
    source: Source | None = None
    kept: Kept | None = None
    failure: str = ""

    @property
    def version(self) -> str:
        """The version that is served here."""
        return self.service.version

    @property
    def loaded(self) -> bool:
        """Whether there is a model in this place."""
        return self.service.model is not None

    def index_entry(self) -> dict[str, str]:
        """The entry of the repository index."""
        service = self.service
        if service.ready:
            state, reason = "READY", self.failure
        elif service.phase is Phase.LOADING and not self.failure:
            state, reason = "LOADING", service.phase.value
        else:
            state, reason = "UNAVAILABLE", self.failure or service.phase.value
        return {"name": service.name, "version": service.version, "state": state, "reason": reason}


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts versions as people count them: v2 before v10, 1.9 before 1.10."""
    parts = [part for part in _NUMBER.split(version) if part]
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)
