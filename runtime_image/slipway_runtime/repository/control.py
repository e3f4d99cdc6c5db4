"""Changing what serves while it serves: load, replace, go back, unload. Lives on the event-loop thread.

A new model is loaded and warmed beside the old one, which serves on meanwhile; then one takes the place of the other
between two requests. Requests that the old one has taken it finishes. It is kept for a while, so that going back to it
takes no time, and freed when it is neither needed nor in use.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from slipway_runtime import journal
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.artefact.location import expected_digest, local_path
from slipway_runtime.protocol.failures import (
    RequestFailure,
    forbidden,
    invalid,
    not_found,
    unauthenticated,
    unavailable,
)
from slipway_runtime.protocol.metadata import model_config
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.repository.catalogue import Catalogue
from slipway_runtime.repository.loader import Heap, Loader
from slipway_runtime.repository.naming import FIRST_VERSION, RESERVED_NAMES, VERSION_FORM
from slipway_runtime.repository.place import Place
from slipway_runtime.repository.repository import Repository
from slipway_runtime.repository.source import LoadRequest, Source
from slipway_runtime.repository.succession import Succession
from slipway_runtime.repository.watch import Watch
from slipway_runtime.serving.service import ModelService, Phase
from slipway_runtime.settings import ControlPolicy, ModelSettings, ServeSettings

_STATUS = {
    ExitCode.ARTEFACT_NOT_FOUND: HTTPStatus.NOT_FOUND,
    ExitCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class ModelControl:
    """Loads and unloads the models of a repository, one change of a name at a time."""

    def __init__(
        self,
        repository: Repository,
        settings: ServeSettings,
        threads: int,
        device_lost: Callable[[BaseException], None],
        heap: Heap | None = None,
    ) -> None:
        """``threads`` are for numeric libraries; ``device_lost`` is told when only a new process can help;
        ``heap`` is given where the process is the server's alone.
        """
        self._repository = repository
        self._settings = settings
        self._rules = settings.repository
        self._catalogue = Catalogue(settings.models, settings.repository.folder, settings.template)
        self._succession = Succession(repository, settings.repository)
        self._loader = Loader(threads, self._model_lost, heap)
        self._tell_device_lost = device_lost
        self._loop = asyncio.get_running_loop()
        self._locks: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def announce(self) -> None:
        """Give every model its place, in which it is loading. Raises Refusal when the folder cannot be read."""
        for models in self._catalogue.entries().values():
            for model in models:
                service = self._repository.accounts.service(model.name, model.version, model.revision)
                self._repository.add(Place(service))

    async def start(self) -> None:
        """Load everything that was announced. Raises Refusal for a model that cannot be loaded, unless it can be
        loaded later."""
        watch = None if self._rules.watch is None else Watch(self._catalogue, self._follow, self._rules.watch)
        if watch is not None:
            await watch.begin()
        told = [model for models in self._catalogue.entries().values() for model in models]
        for model in told:
            try:
                await self._bring(self._source(model))
            except Refusal as refusal:
                if self._rules.lasting:
                    continue
                which = f"model '{model.name}' version '{model.version}': " if len(told) > 1 else ""
                raise Refusal(refusal.reason, f"{which}{refusal.text}", refusal.code) from refusal
        if watch is not None:
            self._task(watch.run())

    def close(self) -> None:
        """Change nothing any more; what is under way is given up."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    async def load(self, name: str, parameters: dict[str, Any], authorization: str = "") -> None:
        """Load a model, or load it anew, as a request says. Raises RequestFailure; then all is as before.

        ``authorization`` is the header of that name.
        """
        await self._permit("load", authorization)
        request = LoadRequest.of(parameters)
        if request.changes_source and not self._rules.allow_changes:
            raise forbidden("uri, version and signature of a model are not taken from requests by this server")
        if name in RESERVED_NAMES:
            raise invalid("the name is reserved")
        if request.version and not VERSION_FORM.fullmatch(request.version):
            raise invalid("a version is made of letters, digits, . _ -")
        await self._change(self._load(name, request))

    async def unload(self, name: str, authorization: str = "") -> None:
        """Serve the model no more; its requests are finished. Raises RequestFailure."""
        await self._permit("unload", authorization)
        if not self._repository.places(name):
            raise not_found(f"there is no model '{name}' here")
        await self._change(self._unload(name))

    async def _permit(self, what: str, authorization: str) -> None:
        if self._rules.control is not ControlPolicy.EXPLICIT:
            raise forbidden(f"this server does not {what} models on request: see --model-control")
        if self._rules.token_file is not None:
            # Read each time: secrets are replaced while servers run.
            await asyncio.to_thread(_check_token, self._rules.token_file, authorization)
        if self._closed:
            raise unavailable("the server is shutting down")

    async def _load(self, name: str, request: LoadRequest) -> None:
        async with self._lock(name):
            entries = await asyncio.to_thread(self._catalogue.entries)
            known = entries.get(name, ())
            if request.changes_source:
                known = (self._base(name, known, request.version),)
            if not known or not (known[0].uri or request.uri):
                raise not_found(f"there is no model '{name}' to load")
            if request.sha256 and len(known) > 1:
                raise invalid(f"model '{name}' has several versions, a sha256 is for one")
            for model in known:
                source = request.applied(self._source(model), self._configuration(model))
                replaced = await self._bring(source, request.changes_source, request.allow_signature_change)
                if request.changes_source:
                    self._catalogue.remember(source.model, replaced)
            if not request.changes_source:
                self._drop_versions(name, known)

    def _configuration(self, model: ModelSettings) -> dict[str, Any]:
        """What clients are told about a model that serves; nothing about another."""
        place = self._place(model)
        if place is None or place.service.model is None:
            return {}
        service = place.service
        return model_config(
            service.name, place.service.model, service.max_batch_size, service.max_delay, service.instances
        )

    def _base(self, name: str, known: tuple[ModelSettings, ...], version: str) -> ModelSettings:
        """What a request to load from elsewhere is said of: that version, or the one served by default."""
        if not known:
            return replace(self._catalogue.template, name=name, version=FIRST_VERSION)
        if not version and self._repository.places(name):
            version = self._repository.find(name).version
        return next((model for model in known if model.version == version), known[-1])

    async def _unload(self, name: str) -> None:
        async with self._lock(name):
            for place in self._repository.places(name):
                self._succession.remove(place, "unloaded")

    async def _follow(self, name: str, models: tuple[ModelSettings, ...], changed: tuple[ModelSettings, ...]) -> None:
        """The files of some ``models`` of that name have changed; without any, the name is gone."""
        async with self._lock(name):
            for model in changed:
                place = self._place(model)
                digest = await _local_digest(model)
                if place is not None and place.loaded and place.service.sha256 == digest:
                    continue
                try:
                    await self._bring(self._source(model))
                except Refusal:
                    continue
            self._drop_versions(name, models)

    def _drop_versions(self, name: str, models: tuple[ModelSettings, ...]) -> None:
        """Part with the versions that are not among ``models``."""
        kept = {model.version for model in models}
        for place in self._repository.places(name):
            if place.version not in kept:
                self._succession.remove(place, "the files are gone")

    async def _bring(self, source: Source, instead: bool = False, any_signature: bool = False) -> str:
        """Load a source into its place; ``instead``: into that of another version, if it has none.

        Gives the version that was in the place before. Raises Refusal.
        """
        model = source.model
        place = self._place(model)
        if place is None and instead and (places := self._repository.places(model.name)):
            place = next((one for one in places if one.service.ready), places[0])
        if place is not None and place.loaded:
            digest = expected_digest(model.sha256)
            if place.kept is not None and not digest:
                digest = await _local_digest(model)
            present = place.version
            if self._succession.restore(place, source, digest):
                return present
        # What was counted under this identity goes on.
        service = self._repository.accounts.service(model.name, model.version, model.revision)
        if place is None:
            place = Place(service, required=False)
            self._repository.add(place)
        present = place.version
        if not place.loaded and place.version != model.version:
            place.service = service
            self._repository.changed()
        try:
            await self._bring_into(place, service if place.loaded else place.service, source, any_signature)
        except Refusal as refusal:
            place.failure = str(refusal)
            if self._rules.lasting:
                journal.record("load-failed", "error", model=model.name, version=model.version, reason=str(refusal))
            raise
        return present

    async def _bring_into(self, place: Place, service: ModelService, source: Source, any_signature: bool) -> None:
        # Two models are in memory while one takes the other's place, not three.
        self._succession.forget(place)
        await self._loader.load(service, source)
        if self._closed:
            service.release()
            raise Refusal("ShuttingDown", "the server is shutting down", ExitCode.INTERNAL)
        self._succession.take_place(place, service, source, any_signature)

    def _place(self, model: ModelSettings) -> Place | None:
        return next((one for one in self._repository.places(model.name) if one.version == model.version), None)

    def _source(self, model: ModelSettings) -> Source:
        return Source(model, self._settings.limits, self._settings.warmup)

    def _model_lost(self, service: ModelService, error: BaseException) -> None:
        """The device of a model has failed for good."""
        if self._succession.go_back(service, str(error).partition("\n")[0]):
            return
        service.enter(Phase.FAILED)
        self._tell_device_lost(error)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _change(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out what a client wants, whether or not it stays to hear of it. Raises RequestFailure."""
        task = self._task(work)
        await asyncio.wait([task])
        if task.cancelled():
            raise unavailable("the server is shutting down")
        try:
            task.result()
        except Refusal as refusal:
            raise RequestFailure(_STATUS.get(refusal.code, HTTPStatus.BAD_REQUEST), str(refusal)) from refusal

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Refusal | RequestFailure):
            journal.record("internal-error", "error", cause=f"{type(error).__name__}: {error}")


def _check_token(file: Path, authorization: str) -> None:
    """Raises RequestFailure (401, 503) unless the header carries the token in the file."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise unavailable("the token that is asked for cannot be read here") from error
    scheme, _, given = authorization.partition(" ")
    right = hmac.compare_digest(given.strip().encode(), token.encode())
    if not token or scheme.lower() != "bearer" or not right:
        raise unauthenticated("a bearer token is needed to load and unload models")


async def _local_digest(model: ModelSettings) -> str:
    """The digest of what lies at a local URI now; empty where that cannot be said."""
    try:
        path = local_path(model.uri)
        return "" if path is None else await asyncio.to_thread(digest_of, path)
    except (Refusal, OSError):
        return ""
