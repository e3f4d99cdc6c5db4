"""Where a model comes from and how it is to be served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec

from slipway_runtime.protocol.failures import RequestFailure, invalid, unsupported
from slipway_runtime.settings import Limits, ModelSettings, Warmup

_MICROSECONDS = 1_000_000
_KEPT = ("name", "platform", "backend")
_TAKEN = ("max_batch_size", "dynamic_batching", "instance_group")


@dataclass(frozen=True)
class Source:
    """Everything that is needed to load a model."""

    model: ModelSettings
    limits: Limits
    warmup: Warmup


class _Batching(msgspec.Struct):
    max_queue_delay_microseconds: int | None = None


class _Group(msgspec.Struct):
    count: int = 1


class _Config(msgspec.Struct):
    max_batch_size: int | None = None
    dynamic_batching: _Batching | None = None
    instance_group: list[_Group] = []


@dataclass(frozen=True)
class LoadRequest:
    """What a request to load a model says; ``config`` is a Triton model configuration as JSON."""

    uri: str = ""
    sha256: str = ""
    version: str = ""
    signature: str = ""
    signature_uri: str = ""
    config: str = ""
    allow_signature_change: bool = False

    @staticmethod
    def of(parameters: dict[str, Any]) -> LoadRequest:
        """The request with these parameters. Raises RequestFailure (400, 501)."""
        known: dict[str, Any] = {}
        for name, value in parameters.items():
            if name.startswith("file:"):
                raise unsupported("the content of a model is not taken from a request: give its uri")
            if name not in LoadRequest.__dataclass_fields__:
                raise invalid(f"there is no load parameter '{name}'")
            wanted = bool if name == "allow_signature_change" else str
            if not isinstance(value, wanted):
                raise invalid(f"load parameter '{name}' must be a {'boolean' if wanted is bool else 'string'}")
            known[name] = value
        return LoadRequest(**known)

    @property
    def changes_source(self) -> bool:
        """Whether it asks for something else than what the server knows under the name."""
        return bool(self.uri or self.version or self.signature or self.signature_uri)

    def applied(self, source: Source, present: Mapping[str, Any] | None = None) -> Source:
        """``source`` with what the request says. Raises RequestFailure (400, 501).

        ``present`` is the model's configuration: what a client has read there it may send back.
        """
        model = source.model
        if self.uri:
            # What was said about the old artefact does not hold for another one.
            access = replace(model.access, signature=self.signature, signature_uri=self.signature_uri)
            model = replace(model, uri=self.uri, sha256="", folder_version="", access=access)
        if self.sha256:
            model = replace(model, sha256=self.sha256)
        if self.version:
            model = replace(model, version=self.version)
        source = replace(source, model=model)
        return _overridden(source, self.config, present or {}) if self.config else source


def _overridden(source: Source, text: str, present: Mapping[str, Any]) -> Source:
    """The source under a Triton configuration: batching and instances can be set, the rest is the model's own."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
        config = msgspec.convert(given, type=_Config)
    except msgspec.MsgspecError as error:
        raise invalid("load parameter 'config' is not a model configuration in JSON") from error
    for name, value in given.items():
        if name not in (*_KEPT, *_TAKEN) and (name not in present or _plain(value) != _plain(present[name])):
            raise unsupported(f"config: '{name}' cannot be overridden, only {', '.join(_TAKEN)}")
    if given.get("name", source.model.name) != source.model.name:
        raise invalid("config: 'name' is another model's")
    limits, model = source.limits, source.model
    # 0 says of a model that is not batched that it is not.
    unbatched = config.max_batch_size == 0 == present.get("max_batch_size")
    if config.max_batch_size is not None and not unbatched:
        limits = replace(limits, max_batch_size=_positive(config.max_batch_size, "max_batch_size"))
    if config.dynamic_batching is not None and config.dynamic_batching.max_queue_delay_microseconds is not None:
        delay = config.dynamic_batching.max_queue_delay_microseconds
        if delay < 0:
            raise invalid("config: 'max_queue_delay_microseconds' must be 0 or more")
        limits = replace(limits, max_delay=delay / _MICROSECONDS)
    if config.instance_group:
        counts = sum(_positive(group.count, "instance_group.count") for group in config.instance_group)
        model = replace(model, instances=counts)
    return replace(source, limits=limits, model=model)


def _plain(value: Any) -> Any:
    """Numbers as texts: a configuration that came over gRPC has them so."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)


def _positive(value: int, name: str) -> int:
    if value < 1:
        raise RequestFailure(HTTPStatus.BAD_REQUEST, f"config: '{name}' must be 1 or more")
    return value
