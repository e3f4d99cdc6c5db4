"""What a lower precision costs and gains, measured against fp32 before the model serves."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slipway_runtime import journal
from slipway_runtime.artefact.format import WEIGHTS, ModelKind
from slipway_runtime.artefact.location import Artefact
from slipway_runtime.models.difference import Difference, Tolerance, differences, worst
from slipway_runtime.models.loading import load
from slipway_runtime.models.model import Model
from slipway_runtime.models.probing import Tensors, synthetic
from slipway_runtime.models.settling import LoadedModel
from slipway_runtime.settings import ModelSettings, Precision

_REPEATS = 5
# Of the largest fp32 answer: what rounding alone does to small networks, with room.
_EXPECTED = {Precision.FP16: 0.01, Precision.BF16: 0.05, Precision.INT8: 0.1}


def compare_with_fp32(
    artefact: Artefact, settings: ModelSettings, loaded: LoadedModel, requests: Sequence[Tensors], rows: int
) -> None:
    """Log how a model in lower precision compares with itself in fp32; a warning when it is slower or strays.

    Runs ``requests``, or a synthetic one of ``rows`` rows. For a moment both models are in memory; where that is too
    much, or the fp32 model fails, the log says that nothing was compared. A handler does its own casting and is not
    compared.
    """
    if settings.precision is Precision.FP32 or artefact.kind not in WEIGHTS | {ModelKind.TORCHSCRIPT}:
        return
    inputs = list(requests)
    if not inputs and loaded.free is not None:
        inputs = [synthetic(loaded.program.signature.inputs, rows, loaded.free)]
    if not inputs:
        journal.record("precision-not-compared", "warning", text="no input is known that the model takes")
        return
    try:
        exact = load(artefact, replace(settings, precision=Precision.FP32)).program
        _compare(settings.precision, exact, loaded.program, inputs)
    except Exception as error:
        journal.record("precision-not-compared", "warning", cause=f"{type(error).__name__}: {str(error)[:300]}")


def _compare(precision: Precision, exact: Model, coarse: Model, inputs: Sequence[Tensors]) -> None:
    found: list[Difference] = []
    share = 0.0
    for one in inputs:
        expected, actual = exact.infer(one), coarse.infer(one)
        seen = differences(expected, actual, Tolerance(0.0, 0.0))
        found += seen
        for tensor, difference in zip(expected, seen, strict=True):
            largest = float(np.max(np.abs(tensor.array), initial=0.0)) if tensor.datatype.is_float else 1.0
            share = max(share, difference.absolute / largest if largest else difference.absolute)
    exact_seconds, coarse_seconds = _seconds(exact, inputs), _seconds(coarse, inputs)
    strays, slower = share > _EXPECTED[precision], coarse_seconds > exact_seconds
    journal.record(
        "precision-compared",
        "warning" if strays or slower else "info",
        precision=precision.value,
        slower_than_fp32=slower,
        beyond_tolerance=strays,
        seconds=round(coarse_seconds, 6),
        fp32_seconds=round(exact_seconds, 6),
        largest_difference=share,
        outputs={one.output: one.absolute for one in worst(found)},
    )


def _seconds(model: Model, inputs: Sequence[Tensors]) -> float:
    """Median time of a request, the first runs left out."""
    times = []
    for turn in range(_REPEATS + 2):
        begun = time.perf_counter()
        for one in inputs:
            model.infer(one)
        if turn > 1:
            times.append((time.perf_counter() - begun) / len(inputs))
    return statistics.median(times)
