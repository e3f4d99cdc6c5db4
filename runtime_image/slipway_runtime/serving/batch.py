"""Running a batch of requests so that one bad request never fails its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipway_runtime import journal
from slipway_runtime.handler import BadRequest
from slipway_runtime.models.model import DeviceLost, Model, OutOfMemory
from slipway_runtime.protocol.failures import RequestFailure, model_failed, refused, unavailable
from slipway_runtime.serving.job import Outcome
from slipway_runtime.tensors.tensor import Tensor

Inputs = tuple[Tensor, ...]


class WrongRowCount(Exception):  # noqa: N818 - what the model did
    """The model gave another number of rows than it got."""


def run_batch(model: Model, requests: Sequence[Inputs], rows: Sequence[int], max_rows: int) -> list[Outcome]:
    """Outcomes of ``requests`` (each of ``rows`` rows), run together and, should that fail, one by one.

    Where the device has not enough memory, halves are run instead, down to single rows. A request of more than
    ``max_rows`` rows runs in chunks. Raises DeviceLost only.
    """
    if len(requests) > 1:
        try:
            together = _infer_rows(model, join(requests), sum(rows))
        except DeviceLost:
            raise
        except OutOfMemory:
            journal.record("batch-halved", "warning", requests=len(requests), rows=sum(rows))
            middle = len(requests) // 2
            first = run_batch(model, requests[:middle], rows[:middle], max_rows)
            return first + run_batch(model, requests[middle:], rows[middle:], max_rows)
        except Exception as error:
            level: journal.Level = "info" if isinstance(error, BadRequest) else "warning"
            journal.record("batch-split", level, requests=len(requests), cause=type(error).__name__)
        else:
            return [*split(together, rows)]
    return [_run_alone(model, inputs, count, max_rows) for inputs, count in zip(requests, rows, strict=True)]


def _run_alone(model: Model, inputs: Inputs, rows: int, max_rows: int) -> Outcome:
    try:
        if model.signature.batched and rows > max_rows:
            return _run_in_chunks(model, inputs, rows, max_rows)
        return tuple(model.infer(inputs)) if not model.signature.batched else _infer_rows(model, inputs, rows)
    except DeviceLost:
        raise
    except OutOfMemory:
        chunk = min(rows, max_rows)
        if model.signature.batched and chunk > 1 and _row_wise(inputs, rows):
            journal.record("request-halved", "warning", rows=chunk)
            return _run_alone(model, inputs, rows, (chunk + 1) // 2)
        return unavailable("the device has not enough memory for this request")
    except RequestFailure as failure:
        return failure
    except BadRequest as error:
        return refused(error)
    except Exception as error:
        journal.record("model-failed", "error", cause=f"{type(error).__name__}: {error}")
        return model_failed()


def _infer_rows(model: Model, inputs: Inputs, rows: int) -> tuple[Tensor, ...]:
    outputs = tuple(model.infer(inputs))
    if model.signature.open and not _row_wise(inputs, rows):
        return outputs
    for output in outputs:
        if not output.shape or output.shape[0] != rows:
            raise WrongRowCount(f"output '{output.name}' has shape {list(output.shape)} for {rows} rows")
    return outputs


def _row_wise(inputs: Inputs, rows: int) -> bool:
    return all(tensor.shape and tensor.shape[0] == rows for tensor in inputs)


def _run_in_chunks(model: Model, inputs: Inputs, rows: int, max_rows: int) -> tuple[Tensor, ...]:
    parts = []
    for start in range(0, rows, max_rows):
        stop = min(start + max_rows, rows)
        chunk = tuple(Tensor(one.name, one.datatype, one.array[start:stop]) for one in inputs)
        parts.append(_infer_rows(model, chunk, stop - start))
    return join(parts)


def join(parts: Sequence[Inputs]) -> Inputs:
    """Rows of several tensors of each name behind one another (the one copy of a batch)."""
    joined = []
    for first in parts[0]:
        arrays = [next(one.array for one in part if one.name == first.name) for part in parts]
        joined.append(Tensor(first.name, first.datatype, np.concatenate(arrays)))
    return tuple(joined)


def split(outputs: Inputs, rows: Sequence[int]) -> list[Inputs]:
    """The rows of each request back, as views."""
    shares = []
    start = 0
    for count in rows:
        shares.append(tuple(Tensor(one.name, one.datatype, one.array[start : start + count]) for one in outputs))
        start += count
    return shares
