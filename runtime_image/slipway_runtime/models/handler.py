"""Python handlers: a class in the model's folder with ``load``, ``preprocess``, ``predict``, ``postprocess``.

A ``predict`` that yields answers in parts: each is given to ``postprocess`` and sent at once.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipway_runtime import journal
from slipway_runtime.artefact.location import Artefact
from slipway_runtime.models.model import DeviceLost, OutOfMemory
from slipway_runtime.models.settling import Contract, LoadedModel, first_that_works
from slipway_runtime.models.source import class_in
from slipway_runtime.models.torch_tensors import TORCH_DTYPES, from_torch
from slipway_runtime.refusal import Refusal
from slipway_runtime.settings import ModelSettings
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Array, Signature, Tensor

PLATFORM = "python"
_WHOLE = "iu"


@dataclass(frozen=True)
class HandlerContext:
    """What ``load`` is given."""

    folder: Path
    """The model's folder."""
    device: str
    """``cpu`` or ``cuda``."""
    precision: str
    """fp32, fp16, bf16 or int8: for the handler to honour."""
    model_name: str
    model_version: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """``arguments`` of config.yaml."""


@dataclass(frozen=True)
class HandlerProgram:
    """A handler as a model. Arrays go in by name; arrays or torch tensors come out by name."""

    handler: Any
    signature: Signature
    on_accelerator: bool
    platform: str = PLATFORM
    takes_parameters: bool = False

    def with_signature(self, signature: Signature) -> HandlerProgram:
        """The same handler under another signature."""
        return replace(self, signature=signature)

    def infer(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """preprocess, predict, postprocess. Raises what they raise, and TypeError for an answer of the wrong kind.

        Of a model that streams it is the first part, which is enough to see that it works.
        """
        if self.signature.streams:
            with contextlib.closing(self._parts(inputs, {})) as parts:
                return next(parts, ())
        with _computing():
            predicted = self._staged("predict", self._preprocessed(inputs))
            return self._answer(self._staged("postprocess", predicted))

    def stream(self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Iterator[tuple[Tensor, ...]]:
        """The parts of an answer. Raises as ``infer`` does, between any two of them.

        A ``predict`` that takes a second argument is given the request's ``parameters`` in it.
        """
        return self._parts(inputs, parameters)

    def _parts(
        self, inputs: Sequence[Tensor], parameters: Mapping[str, Any]
    ) -> Generator[tuple[Tensor, ...], None, None]:
        # The mode belongs to the thread, which does other work between two parts.
        with _computing():
            value = self._preprocessed(inputs)
            predict = self.handler.predict
            parts = predict(value, parameters) if self.takes_parameters else predict(value)
        try:
            while True:
                with _computing():
                    try:
                        part = next(parts)
                    except StopIteration:
                        return
                    answer = self._answer(self._staged("postprocess", part))
                yield answer
        finally:
            parts.close()

    def _preprocessed(self, inputs: Sequence[Tensor]) -> Any:
        return self._staged("preprocess", {tensor.name: tensor.array for tensor in inputs})

    def _staged(self, stage: str, value: Any) -> Any:
        step = getattr(self.handler, stage, None)
        return value if step is None else step(value)

    def _answer(self, value: Any) -> tuple[Tensor, ...]:
        wanted = self.signature.outputs
        if not isinstance(value, Mapping):
            if len(wanted) != 1:
                raise TypeError(f"the handler gave {type(value).__name__}, not a dict of its outputs by name")
            value = {wanted[0].name: value}
        missing = [spec.name for spec in wanted if spec.name not in value]
        if missing:
            raise TypeError(f"the handler gave no output '{missing[0]}'")
        return tuple(_tensor(spec.name, spec.datatype, value[spec.name]) for spec in wanted)


@contextlib.contextmanager
def _computing() -> Iterator[None]:
    """No gradients, and what goes wrong with the device under its own name."""
    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        raise OutOfMemory(str(error)) from error
    except RuntimeError as error:
        if "device-side assert" in str(error) or "illegal memory access" in str(error):
            raise DeviceLost(str(error)) from error
        raise


def _tensor(name: str, datatype: Datatype, value: Any) -> Tensor:
    """The output as it is declared. Raises TypeError for a value that is of another kind or does not fit."""
    if datatype is Datatype.BYTES:
        return _texts(name, value)
    found = from_torch(name, value) if isinstance(value, torch.Tensor) else None
    if found is not None and found.datatype is datatype:
        return found
    if Datatype.BF16 in (datatype, None if found is None else found.datatype):
        return _through_torch(name, datatype, value)
    array = np.asarray(value) if found is None else found.array
    return Tensor(name, datatype, np.asarray(_converted(name, datatype, array), order="C"))


def _texts(name: str, value: Any) -> Tensor:
    array = np.asarray(value, dtype=object)
    items = [one if isinstance(one, bytes) else str(one).encode() for one in array.reshape(-1)]
    encoded = np.empty(len(items), dtype=object)
    encoded[:] = items
    return Tensor(name, Datatype.BYTES, encoded.reshape(array.shape))


def _through_torch(name: str, datatype: Datatype, value: Any) -> Tensor:
    """NumPy has no BF16: arrays of its bits are taken as they are, floats are rounded by torch."""
    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        if array.dtype == datatype.numpy:
            return Tensor(name, datatype, np.asarray(array, order="C"))
        value = torch.from_numpy(_converted(name, Datatype.FP32, array))
    if not value.is_floating_point() or not datatype.is_float:
        raise _unlike(name, datatype, value.dtype)
    return from_torch(name, value.to(TORCH_DTYPES[datatype]))


def _converted(name: str, datatype: Datatype, array: Array) -> Array:
    """Numbers in the declared datatype: lists and NumPy's defaults have twice the bits. Kinds are not changed."""
    wanted = datatype.numpy
    if array.dtype == wanted:
        return array
    whole = array.dtype.kind in _WHOLE and wanted.kind in _WHOLE
    if not whole and not (wanted.kind == "f" and array.dtype.kind in (*_WHOLE, "f")):
        raise _unlike(name, datatype, array.dtype)
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    if whole and not np.array_equal(converted, array):
        raise TypeError(f"output '{name}' holds numbers beyond {datatype}")
    return converted


def _unlike(name: str, datatype: Datatype, dtype: object) -> TypeError:
    return TypeError(f"output '{name}' is of {dtype}, declared is {datatype}")


def load_handler(artefact: Artefact, settings: ModelSettings, contract: Contract, device: torch.device) -> LoadedModel:
    """An instance of the handler, loaded and probed. Raises Refusal."""
    description = artefact.description
    if description.code is None or description.root is None:
        raise Refusal("NotAModel", "a Python handler lies in a folder with a config.yaml that names it")
    if not contract.inputs or not contract.outputs:
        raise Refusal(
            "ContractMissing", "a Python handler needs its inputs and outputs declared, in config.yaml or here"
        )
    found = class_in(description.code, lambda one: callable(getattr(one, "predict", None)), "handler with predict")
    context = HandlerContext(
        folder=description.root,
        device=device.type,
        precision=settings.precision.value,
        model_name=settings.name,
        model_version=settings.version,
        arguments=description.arguments,
    )
    try:
        handler = found()
        if hasattr(handler, "load"):
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                handler.load(context)
    except Exception as error:
        text = f"{found.__name__}.load: {type(error).__name__}: {str(error)[:500]}"
        raise Refusal("LoadFailed", text) from error
    if inspect.isasyncgenfunction(found.predict) or inspect.iscoroutinefunction(found.predict):
        raise Refusal("NotAModel", f"{found.__name__}.predict is async: it must be a function or a generator")
    streams = inspect.isgeneratorfunction(found.predict)
    signature = Signature(contract.inputs, contract.outputs, batched=False, streams=streams)
    takes_parameters = streams and len(inspect.signature(handler.predict).parameters) > 1
    program = HandlerProgram(handler, signature, device.type != "cpu", takes_parameters=takes_parameters)
    return _settled(program, declared_row_wise=description.row_wise is True)


def _settled(program: HandlerProgram, *, declared_row_wise: bool) -> LoadedModel:
    """A handler may refuse made-up inputs (texts, images): then requests run together only if it is said to do that."""
    signature = program.signature
    seen = first_that_works(program, signature.inputs)
    if seen is None:
        rows = all(spec.shape[:1] == (-1,) for spec in (*signature.inputs, *signature.outputs))
        batched = declared_row_wise and rows and not signature.streams
        text = "the handler takes no made-up input: give goldens to warm it up"
        text += "" if batched else "; requests are not batched unless batching.rowWise is true"
        journal.record("handler-not-probed", "warning", text=text)
        return LoadedModel(program.with_signature(replace(signature, batched=batched)), None)
    observation, free = seen
    # A stream may have no part at all for a made-up input.
    for spec, actual in zip(signature.outputs, observation.outputs, strict=not signature.streams):
        if len(spec.shape) != len(actual.shape):
            raise Refusal(
                "ContractMismatch",
                f"output '{spec.name}': declared shape {list(spec.shape)}, the handler gives {list(actual.shape)}",
            )
    rows = observation.row_wise and not signature.streams
    batched = rows and all(spec.shape[:1] == (-1,) for spec in signature.outputs)
    return LoadedModel(program.with_signature(replace(signature, batched=batched)), free)
