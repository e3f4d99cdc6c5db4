"""Weights with a model class: safetensors or a state dict, and a Python file in the model's folder."""

from __future__ import annotations

import inspect
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.artefact.location import Artefact
from slipway_runtime.models.precision import apply_precision
from slipway_runtime.models.source import class_in
from slipway_runtime.models.torchscript import TorchModule
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Precision

PLATFORM = "pytorch_eager"
# Checkpoints of training loops keep the weights under one of these keys.
_NESTED = ("state_dict", "model_state_dict", "model_state", "model")


def load_weights(artefact: Artefact, device: torch.device, precision: Precision) -> TorchModule:
    """An instance of the model class with the weights in it. Raises Refusal."""
    description = artefact.description
    code = description.code
    if code is None:
        raise Refusal("NotAModel", f"{artefact.kind.value} need a model class; name it in config.yaml")
    found = class_in(code, lambda one: issubclass(one, torch.nn.Module), "torch.nn.Module")
    try:
        module = found(**description.arguments)
    except Exception as error:
        raise Refusal("LoadFailed", f"{found.__name__}(): {type(error).__name__}: {error}") from error
    try:
        module.load_state_dict(_state(artefact), strict=True)
    except (RuntimeError, TypeError) as error:
        lines = " ".join(str(error).split())[:500]
        raise Refusal("LoadFailed", f"the weights do not fit {found.__name__}: {lines}") from error
    module = module.to(device).eval()
    module, dtype = apply_precision(module, precision, device, scripted=False)
    return TorchModule(module, _required_arguments(found), dtype, _optional_arguments(found))


def _state(artefact: Artefact) -> dict[str, Any]:
    state = _read_safetensors(artefact.path) if artefact.kind is ModelKind.SAFETENSORS else _read_checkpoint(artefact)
    for key in _NESTED:
        nested = state.get(key)
        if isinstance(nested, dict):
            state = nested
    return {name.removeprefix("module."): value for name, value in state.items()}


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        text = "this image has no safetensors: install slipway[runtime-safetensors]"
        raise Refusal("FormatNotSupported", text, ExitCode.BAD_ARGUMENTS) from error
    try:
        state: dict[str, Any] = safetensors.torch.load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise Refusal("LoadFailed", f"safetensors cannot read the weights: {error}") from error
    return state


def _read_checkpoint(artefact: Artefact) -> dict[str, Any]:
    """A state dict. Objects beyond tensors are unpickled only for a signed artefact that may do so."""
    try:
        # Mapped into memory it is read while it is copied, which lets other threads run; old files cannot be mapped.
        mapped = zipfile.is_zipfile(artefact.path)
        state = torch.load(str(artefact.path), map_location="cpu", weights_only=not artefact.allow_pickle, mmap=mapped)
    except pickle.UnpicklingError as error:
        text = "the checkpoint holds Python objects; save its state_dict, or sign it and pass --allow-pickle"
        raise Refusal("UnsafeModel", text) from error
    except (RuntimeError, ValueError, EOFError, OSError) as error:
        raise Refusal("LoadFailed", f"torch cannot read the checkpoint: {type(error).__name__}") from error
    if isinstance(state, torch.nn.Module):
        return dict(state.state_dict())
    if not isinstance(state, dict):
        raise Refusal("NotAModel", f"the checkpoint holds a {type(state).__name__}, not a state dict")
    return state


def _required_arguments(found: type[Any]) -> tuple[str, ...]:
    parameters = list(inspect.signature(found.forward).parameters.values())[1:]
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(one.name for one in parameters if one.kind in by_position and one.default is inspect.Parameter.empty)


def _optional_arguments(found: type[Any]) -> tuple[str, ...]:
    """Those that are None unless they are given: tensors, if anything is said of them."""
    parameters = list(inspect.signature(found.forward).parameters.values())[1:]
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(one.name for one in parameters if one.kind in by_name and one.default is None)
