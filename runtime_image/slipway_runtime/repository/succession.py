"""One model after another in the same place: swap, keep for a while, go back, let go. Lives on the event loop."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from slipway_runtime import journal
from slipway_runtime.refusal import Refusal
from slipway_runtime.repository.compatibility import incompatibility
from slipway_runtime.repository.place import Kept, Place
from slipway_runtime.repository.repository import Repository
from slipway_runtime.repository.source import Source
from slipway_runtime.serving.service import ModelService, Phase
from slipway_runtime.serving.trial import Trial
from slipway_runtime.settings import Access, RepositorySettings

_SWEEP_SECONDS = 0.05


class Succession:
    """Changes which service is in a place, at once and between two requests."""

    def __init__(self, repository: Repository, rules: RepositorySettings) -> None:
        self._repository = repository
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self._sweeping = False

    def take_place(self, place: Place, service: ModelService, source: Source, any_signature: bool) -> None:
        """``service``, loaded from ``source``, serves from now on. Raises Refusal when clients would notice."""
        old = place.service
        if old is service:
            place.source, place.failure = source, ""
            self._repository.changed()
            return
        if not (any_signature or self._rules.allow_signature_changes):
            self._compare(old, service)
        kept = Kept(old, place.source)
        self._put(place, service, source)
        self._keep(place, kept)
        service.trial = Trial(lambda cause: self._back_from(place, service, cause))
        journal.record(
            "replaced",
            model=service.name,
            version=service.version,
            sha256=service.sha256,
            old_version=old.version,
            old_sha256=old.sha256,
        )

    def restore(self, place: Place, source: Source, digest: str) -> bool:
        """Whether the model of that digest was kept and serves again, with nothing loaded."""
        kept = place.kept
        if kept is None or kept.source is None or not digest or kept.service.sha256 != digest:
            return False
        if digest == place.service.sha256 or _but_for_the_place(kept.source) != _but_for_the_place(source):
            return False
        if not kept.service.responsive:
            return False
        present = Kept(place.service, place.source)
        place.kept = None
        self._put(place, kept.service, source)
        self._keep(place, present)
        journal.record("restored", model=kept.service.name, version=kept.service.version, sha256=digest)
        return True

    def go_back(self, service: ModelService, cause: str) -> bool:
        """Whether a model that has not answered yet was replaced by the one before it."""
        if service.trial is None or not service.trial.undecided:
            return False
        place = next((one for one in self._repository.places(service.name) if one.service is service), None)
        return place is not None and self._back_from(place, service, cause)

    def forget(self, place: Place) -> None:
        """There is no way back any more."""
        kept, place.kept = place.kept, None
        if kept is not None:
            self._part(kept.service)

    def remove(self, place: Place, reason: str) -> None:
        """The place is given up; ``reason`` is for the index."""
        service = place.service
        self._repository.remove(place, reason)
        self.forget(place)
        service.metrics.ready.set(0.0)
        if place.loaded:
            self._part(service)
        journal.record("removed", model=service.name, version=service.version, reason=reason)

    def _compare(self, old: ModelService, new: ModelService) -> None:
        if old.model is None or new.model is None:
            return
        difference = incompatibility(old.model.signature, new.model.signature)
        if difference is not None:
            if new.metrics is not old.metrics:
                new.metrics.ready.set(0.0)
            self._part(new)
            raise Refusal("SignatureChanged", f"clients of the present model could not go on: {difference}")

    def _put(self, place: Place, service: ModelService, source: Source | None) -> None:
        old = place.service
        old.step_aside()
        place.service, place.source, place.failure = service, source, ""
        if old.metrics is not service.metrics:
            old.metrics.ready.set(0.0)
        if service.phase not in (Phase.DRAINING, Phase.CLOSING):
            service.enter(Phase.READY)
        self._repository.changed()

    def _keep(self, place: Place, kept: Kept) -> None:
        if self._rules.rollback_window <= 0:
            self._part(kept.service)
            return
        place.kept = kept
        self._loop.call_later(self._rules.rollback_window, self._expire, place, kept)

    def _expire(self, place: Place, kept: Kept) -> None:
        if place.kept is kept:
            self.forget(place)

    def _back_from(self, place: Place, service: ModelService, cause: str) -> bool:
        kept = place.kept
        if kept is None or place.service is not service or not kept.service.responsive:
            return False
        place.kept = None
        service.phase = Phase.FAILED
        self._put(place, kept.service, kept.source)
        place.failure = f"RolledBack: {cause}"
        journal.record("rolled-back", "error", model=service.name, version=service.version, cause=cause)
        # After this turn of the loop, in which the last of its requests may still be ending.
        self._loop.call_soon(service.refuse_waiting)
        self._part(service)
        return True

    def _part(self, service: ModelService) -> None:
        service.step_aside()
        self._repository.part_with(service)
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        self._sweeping = self._repository.release_idle()
        if self._sweeping:
            self._loop.call_later(_SWEEP_SECONDS, self._sweep)


def _but_for_the_place(source: Source) -> Source:
    """What matters apart from where the artefact lay, which the digest stands for."""
    return replace(source, model=replace(source.model, uri="", sha256="", folder_version="", access=Access()))
