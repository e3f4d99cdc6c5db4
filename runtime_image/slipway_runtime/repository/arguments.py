"""The part of ``slipway-runtime serve``'s command line that says which models there are and who may change them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.repository.naming import FIRST_VERSION, RESERVED_NAMES, VERSION_FORM
from slipway_runtime.settings import ControlPolicy, ModelSettings, RepositorySettings

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
_NAMED = re.compile(r"(?P<name>[^=/:]+)(?::(?P<version>[^=/:]+))?=(?P<place>.+)", re.DOTALL)
_OF_ONE = ("sha256", "signature", "signature_uri", "warmup_file", "inputs", "outputs", "shadow_file")
"""Arguments that say something of one certain model."""


def add_arguments(
    serve: argparse.ArgumentParser, seconds: Callable[[str], float], whole: Callable[[int], type]
) -> None:
    """``seconds`` parses a duration, ``whole(minimum)`` makes a parser of whole numbers."""
    rules = RepositorySettings()
    text = "path or URI of a model, or NAME=PATH, or NAME:VERSION=PATH; without a name, that of the file or folder"
    serve.add_argument("models", nargs="*", metavar="MODEL", help=text)
    serve.add_argument("--model-name", help="of the model at --uri")
    serve.add_argument("--model-version", help="likewise")
    serve.add_argument("--revision", default="")
    serve.add_argument("--uri", help="file://, https://, s3://, gs://, hf://, oci:// or models:/")
    serve.add_argument("--sha256", default="", help="digest the model must have; checked before it is read")
    serve.add_argument("--repository", type=Path, metavar="DIR", help="a folder with a subfolder for each model")
    text = "copies of a model that compute at once, on each device; default: config.yaml's, or 1"
    serve.add_argument("--instances", type=whole(1), help=text)
    serve.add_argument("--cuda-devices", default="", help="numbers of GPUs, as 0,1: a copy of each model on each")
    text = "explicit: requests may load and unload models; none: they are refused"
    serve.add_argument("--model-control", type=ControlPolicy, default=rules.control, help=text)
    text = "file with the bearer token that these requests must carry"
    serve.add_argument("--model-control-token", type=Path, metavar="FILE", help=text)
    text = "with --model-control explicit: requests may also say from where a model is loaded"
    serve.add_argument("--allow-repository-changes", action="store_true", help=text)
    text = "let a model take the place of one with other inputs or outputs"
    serve.add_argument("--allow-signature-changes", action="store_true", help=text)
    serve.add_argument("--allow-no-models", action="store_true", help="be ready without any model")
    text = "load what changes on disk, looking that often (2s without a number)"
    serve.add_argument("--watch", type=seconds, nargs="?", const=2.0, help=text)
    text = "how long a replaced model is kept to go back to"
    serve.add_argument("--rollback-window", type=seconds, default=rules.rollback_window, help=text)


def models_of(given: argparse.Namespace, template: ModelSettings) -> tuple[ModelSettings, ...]:
    """The models that the arguments name; ``template`` has what they have in common. Raises Refusal (64)."""
    found = [_positional(text, template) for text in given.models]
    if given.uri or given.model_name is not None or given.model_version is not None:
        if not given.uri or given.model_name is None or given.model_version is None:
            raise _bad("--model-name, --model-version and --uri belong together")
        model = replace(template, name=given.model_name, version=given.model_version, uri=given.uri)
        found.append(replace(model, revision=given.revision))
    for model in found:
        if model.name in RESERVED_NAMES:
            raise _bad(f"a model cannot be called {model.name!r}")
        if not VERSION_FORM.fullmatch(model.version):
            raise _bad("a version must be letters, digits, . _ -")
    if len({(model.name, model.version) for model in found}) != len(found):
        raise _bad("a model is given twice: call them NAME=PATH or NAME:VERSION=PATH")
    if not found and given.repository is None and not given.allow_no_models:
        raise _bad("no model: give MODEL, or --model-name, --model-version and --uri, or --repository")
    one = len(found) == 1 and given.repository is None
    for name in _OF_ONE:
        if getattr(given, name) and not one:
            raise _bad(f"--{name.replace('_', '-')} is for one model, here are several")
    if given.shadow_file and (given.model_control is not ControlPolicy.NONE or given.watch is not None):
        raise _bad("--shadow-file is for a model that stays: not with --model-control explicit or --watch")
    return tuple(found)


def repository_settings(given: argparse.Namespace) -> RepositorySettings:
    """Who may change the models. Raises Refusal (64)."""
    for flag in ("allow_repository_changes", "model_control_token"):
        if getattr(given, flag) and given.model_control is not ControlPolicy.EXPLICIT:
            raise _bad(f"--{flag.replace('_', '-')} is for --model-control explicit")
    if given.watch is not None and given.watch <= 0:
        raise _bad("--watch must be more than 0")
    return RepositorySettings(
        folder=None if given.repository is None else given.repository.resolve(),
        control=given.model_control,
        token_file=given.model_control_token,
        allow_changes=given.allow_repository_changes,
        allow_signature_changes=given.allow_signature_changes,
        allow_no_models=given.allow_no_models,
        watch=given.watch,
        rollback_window=given.rollback_window,
    )


def cuda_devices(text: str) -> tuple[int, ...]:
    """Numbers of GPUs. Raises Refusal (64)."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdigit() for part in parts) or len(set(parts)) != len(parts):
        raise _bad("--cuda-devices takes different numbers, as 0,1")
    return tuple(int(part) for part in parts)


def _positional(text: str, template: ModelSettings) -> ModelSettings:
    named = _NAMED.fullmatch(text)
    place = named["place"] if named else text
    if not _SCHEME.match(place):
        place = Path(place).resolve().as_uri()
    name = named["name"] if named else Path(place.rstrip("/").rpartition("/")[2]).stem
    version = (named and named["version"]) or FIRST_VERSION
    return replace(template, name=name, version=version, uri=place)


def _bad(text: str) -> Refusal:
    return Refusal("BadArguments", text, ExitCode.BAD_ARGUMENTS)
