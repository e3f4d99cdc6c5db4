"""Running the model before anybody asks: first executions are slow, and broken models show here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from slipway_runtime import journal
from slipway_runtime.handler import BadRequest
from slipway_runtime.models.model import Model
from slipway_runtime.models.probing import close, synthetic
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest, check_against, decode_request
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.tensors.tensor import Tensor


class _Golden(msgspec.Struct):
    request: msgspec.Raw
    response: dict[str, Any] | None = None


@dataclass(frozen=True)
class Golden:
    """A request with the outputs it should give (None: any)."""

    request: InferRequest
    expected: tuple[Tensor, ...] | None


@dataclass(frozen=True)
class Timing:
    """One execution of the warm-up."""

    rows: int
    seconds: float


def read_goldens(path: Path, flag: str = "--warmup-file") -> list[Golden]:
    """The file's requests: a JSON list of ``{"request": {…}, "response": {…}}``. Raises Refusal (64), naming ``flag``.

    A folder stands for its files in the order of their names: a ConfigMap is mounted as one, and the links that
    Kubernetes keeps in it begin with two dots.
    """
    try:
        files = [path]
        if path.is_dir():
            files = sorted(found for found in path.iterdir() if not found.name.startswith(".."))
        entries = [entry for file in files for entry in msgspec.json.decode(file.read_bytes(), type=list[_Golden])]
        return [Golden(_request(entry.request), _expected(entry.response)) for entry in entries]
    except OSError as error:
        raise Refusal("BadWarmupFile", f"{flag} cannot be read: {error.strerror}", ExitCode.BAD_ARGUMENTS) from error
    except (msgspec.MsgspecError, RequestFailure) as error:
        raise Refusal("BadWarmupFile", f"{flag}: {error}", ExitCode.BAD_ARGUMENTS) from error


def _request(raw: msgspec.Raw) -> InferRequest:
    return decode_request(memoryview(bytes(raw)), None)


def _expected(response: dict[str, Any] | None) -> tuple[Tensor, ...] | None:
    """A response's outputs have the form of a request's inputs, so the same decoder reads them."""
    if response is None or not response.get("outputs"):
        return None
    return decode_request(memoryview(msgspec.json.encode({"inputs": response["outputs"]})), None).inputs


def warm_up(
    model: Model, repeats: int, batch_sizes: Sequence[int], free: int | None, goldens: Sequence[Golden]
) -> list[Timing]:
    """Exercise the model; on its own thread, before it is ready.

    Runs the goldens where there are any, and ``repeats`` synthetic requests of each size otherwise.
    Raises Refusal (WarmupFailed) when the model cannot answer; that a handler takes no made-up request of some size
    is no failure of it. A golden with another answer is only
    logged: the tolerance is the operator's to know, and it compares by itself.
    """
    if goldens:
        return _run_goldens(model, repeats, goldens)
    timings: list[Timing] = []
    if free is None:
        return timings
    for rows in batch_sizes:
        inputs = synthetic(model.signature.inputs, rows, free)
        try:
            timings += [_timed(model, inputs, rows) for _ in range(repeats)]
        except Refusal as refusal:
            if not isinstance(refusal.__cause__, BadRequest):
                raise
            journal.record("warmup-request-refused", rows=rows, text=str(refusal.__cause__)[:300])
    return timings


def _run_goldens(model: Model, repeats: int, goldens: Sequence[Golden]) -> list[Timing]:
    timings: list[Timing] = []
    for number, golden in enumerate(goldens):
        try:
            check_against(model.signature, golden.request)
        except RequestFailure as failure:
            raise Refusal("WarmupFailed", f"golden request {number}: {failure.text}") from failure
        rows = golden.request.inputs[0].shape[0] if model.signature.batched else 1
        timings.append(_timed(model, golden.request.inputs, rows))
        if golden.expected is not None and not _matches(model.infer(golden.request.inputs), golden.expected):
            journal.record("golden-differs", "warning", request=number)
    for turn in range(max(0, repeats - len(goldens))):
        golden = goldens[turn % len(goldens)]
        rows = golden.request.inputs[0].shape[0] if model.signature.batched else 1
        timings.append(_timed(model, golden.request.inputs, rows))
    return timings


def _timed(model: Model, inputs: tuple[Tensor, ...], rows: int) -> Timing:
    begun = time.perf_counter()
    try:
        model.infer(inputs)
    except Exception as error:
        text = str(error).strip().rpartition("\n")[2][:500]
        raise Refusal("WarmupFailed", f"the model fails on a warm-up request of {rows} rows: {text}") from error
    return Timing(rows, time.perf_counter() - begun)


def _matches(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    by_name = {tensor.name: tensor for tensor in actual}
    return all(
        (mine := by_name.get(one.name)) is not None
        and mine.datatype is one.datatype
        and mine.shape == one.shape
        and close(mine, one)
        for one in expected
    )
