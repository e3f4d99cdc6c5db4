"""Following the models on disk: what changes there is loaded, what is gone is unloaded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from slipway_runtime import journal
from slipway_runtime.refusal import Refusal
from slipway_runtime.repository.catalogue import Catalogue, Fingerprint, fingerprint
from slipway_runtime.settings import ModelSettings

Models = tuple[ModelSettings, ...]
Follow = Callable[[str, Models, Models], Awaitable[None]]
"""Gets a name, its models, and those of them that have changed."""


class Watch:
    """Looks every few seconds. What is found changed is acted upon when it has stopped changing."""

    def __init__(self, catalogue: Catalogue, follow: Follow, seconds: float) -> None:
        self._catalogue = catalogue
        self._follow = follow
        self._seconds = seconds
        self._known: dict[ModelSettings, Fingerprint | None] = {}
        self._moving: dict[ModelSettings, Fingerprint | None] = {}

    async def begin(self) -> None:
        """Take note of what is about to be loaded. Raises Refusal."""
        for models in (await self._entries()).values():
            self._known |= models

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self.look()
            except Refusal as refusal:
                journal.record("watch-failed", "warning", reason=str(refusal))
            except Exception as error:
                # A defect of ours: the next look may go well.
                journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")

    async def look(self) -> None:
        """Look once. Raises Refusal when the folder cannot be read."""
        entries = await self._entries()
        gone = {model.name for model in self._known} - set(entries)
        for name in gone:
            self._known = {model: seen for model, seen in self._known.items() if model.name != name}
            await self._follow(name, (), ())
        for name, models in entries.items():
            settled = [model for model, seen in models.items() if self._settled(model, seen)]
            known = {model for model in self._known if model.name == name}
            for model in known - set(models):
                del self._known[model]
            if settled or known - set(models):
                await self._follow(name, tuple(models), tuple(settled))

    def _settled(self, model: ModelSettings, seen: Fingerprint | None) -> bool:
        """Whether the model has changed, and looks as it did the last time."""
        if seen is None or self._known.get(model) == seen:
            self._moving.pop(model, None)
            return False
        if self._moving.get(model) != seen:
            self._moving[model] = seen
            return False
        del self._moving[model]
        self._known[model] = seen
        return True

    async def _entries(self) -> dict[str, dict[ModelSettings, Fingerprint | None]]:
        return await asyncio.to_thread(self._read)

    def _read(self) -> dict[str, dict[ModelSettings, Fingerprint | None]]:
        return {
            name: {model: fingerprint(model.uri) for model in models}
            for name, models in self._catalogue.entries().items()
        }
