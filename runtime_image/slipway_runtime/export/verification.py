"""``slipway-runtime verify A B``: the same requests to two models, and how far their answers lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from slipway_runtime.artefact.arrival import arrived
from slipway_runtime.models.contract import align_names
from slipway_runtime.models.difference import Difference, Tolerance, differences, worst
from slipway_runtime.models.loading import load
from slipway_runtime.models.model import Model
from slipway_runtime.models.probing import Tensors, synthetic
from slipway_runtime.models.settling import LoadedModel
from slipway_runtime.protocol.failures import RequestFailure
from slipway_runtime.protocol.request import InferRequest, check_against
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.serving.streaming import StreamingModel
from slipway_runtime.serving.warmup import read_goldens
from slipway_runtime.settings import ModelSettings
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, Tensor

_ROWS = (1, 3)
_MOST_PARTS = 10_000


@dataclass(frozen=True)
class Verification:
    """The largest differences for each output of the reference, over all requests."""

    requests: int
    outputs: tuple[Difference, ...]
    reference_digest: str
    other_digest: str
    renamed: tuple[tuple[str, str], ...] = ()
    """Outputs that were told apart by their order: the reference's name, and the other's."""

    @property
    def within(self) -> bool:
        """Whether every element of every output is within the tolerance."""
        return all(one.within for one in self.outputs)

    def text(self) -> str:
        """A report for people: a line for each output, then the digests."""
        lines = [f"{'output':24} {'max abs':>12} {'max rel':>12}  within"]
        for one in self.outputs:
            verdict = "yes" if one.within else f"NO {one.text}".rstrip()
            lines.append(f"{one.output:24} {one.absolute:12.4g} {one.relative:12.4g}  {verdict}")
        lines += [f"{name} is {own} of B" for name, own in self.renamed]
        lines += [f"requests {self.requests}", f"sha256 A {self.reference_digest}", f"sha256 B {self.other_digest}"]
        return "\n".join(lines) + "\n"


def verify(
    reference: ModelSettings,
    other: ModelSettings,
    tolerance: Tolerance,
    goldens: Path | None = None,
    written: Path | None = None,
) -> Verification:
    """Run both models. Raises Refusal.

    Inputs and outputs are matched by name or, where the models have no name in common, by their order. Requests come
    from ``goldens`` (their recorded answers are not looked at), or are made up from the reference's signature.
    With ``written``, requests and the reference's answers are written there as goldens.
    """
    with arrived(reference) as first:
        exact, first_digest = load(first, reference), first.digest
        requests = _requests(exact, goldens)
        expected = [_parts(exact.program, one, "A") for one in requests]
    with arrived(other) as second:
        program, second_digest = load(second, other).program, second.digest
        own = _renaming(exact.program.signature, program.signature)
        asked = [tuple(_called(own.get(one.name, one.name), one) for one in request) for request in requests]
        found: list[Difference] = []
        renamed: dict[str, str] = {}
        for request, parts in zip(asked, expected, strict=True):
            answers = _parts(program, request, "B")
            if len(answers) != len(parts):
                text = f"{len(parts)} against {len(answers)}"
                found.append(Difference("number of parts", np.inf, np.inf, False, text))
            for outputs, answer in zip(parts, answers, strict=False):
                names = _by_order(outputs, answer)
                renamed |= {name: own for own, name in names.items()}
                found += differences(
                    outputs, [_called(names.get(one.name, one.name), one) for one in answer], tolerance
                )
    if not found:
        text = "both models answer these requests with nothing: give --goldens"
        raise Refusal("NothingCompared", text, ExitCode.BAD_ARGUMENTS)
    if written is not None:
        _write(written, goldens_document(requests, [parts[0] if parts else () for parts in expected]))
    return Verification(len(requests), tuple(worst(found)), first_digest, second_digest, tuple(renamed.items()))


def _parts(model: Model, request: Tensors, which: str) -> list[tuple[Tensor, ...]]:
    """The answer: one part, or all that a model which streams gives. Raises Refusal."""
    try:
        check_against(model.signature, InferRequest(request))
    except RequestFailure as failure:
        raise Refusal("RequestRefused", f"{which} does not take the request: {failure.text}") from failure
    try:
        if model.signature.streams:
            return list(islice(cast(StreamingModel, model).stream(request, {}), _MOST_PARTS))
        return [model.infer(request)]
    except Exception as error:
        text = str(error).strip().rpartition("\n")[2][:500]
        raise Refusal("ModelFailed", f"{which} fails on a request: {type(error).__name__}: {text}") from error


def _called(name: str, tensor: Tensor) -> Tensor:
    return Tensor(name, tensor.datatype, tensor.array)


def _renaming(reference: Signature, other: Signature) -> dict[str, str]:
    """The other's name for each input of the reference. Raises Refusal where that cannot be told."""
    names, own = ([spec.name for spec in one.inputs] for one in (reference, other))
    return {name: own[at] for name, at in zip(names, align_names(names, own, "input"), strict=True)}


def _by_order(reference: Sequence[Tensor], other: Sequence[Tensor]) -> dict[str, str]:
    """The reference's name for each output of the other, where they have none in common and are as many."""
    names, own = ([one.name for one in tensors] for tensors in (reference, other))
    return {} if set(names) & set(own) or len(names) != len(own) else dict(zip(own, names, strict=True))


def _write(path: Path, document: bytes) -> None:
    try:
        path.write_bytes(document)
    except OSError as error:
        text = f"--write-goldens: {path} cannot be written: {error.strerror}"
        raise Refusal("CannotWrite", text, ExitCode.BAD_ARGUMENTS) from error


def _requests(model: LoadedModel, goldens: Path | None) -> list[Tensors]:
    if goldens is not None:
        return [one.request.inputs for one in read_goldens(goldens, "--goldens")]
    if model.free is None:
        raise Refusal("NoRequests", "no input is known that the model takes: give --goldens", ExitCode.BAD_ARGUMENTS)
    signature = model.program.signature
    return [synthetic(signature.inputs, rows, model.free) for rows in (_ROWS if signature.batched else _ROWS[:1])]


def goldens_document(requests: Sequence[Tensors], answers: Sequence[Sequence[Tensor]]) -> bytes:
    """Goldens as ``--warmup-file`` and a ModelDeployment take them. Raises Refusal for datatypes without JSON form."""
    document = [
        {"request": {"inputs": _encoded(inputs)}, "response": {"outputs": _encoded(outputs)}}
        for inputs, outputs in zip(requests, answers, strict=True)
    ]
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _encoded(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    for tensor in tensors:
        if not tensor.datatype.has_json_form:
            text = f"'{tensor.name}' is of {tensor.datatype}, which has no JSON form: goldens cannot hold it"
            raise Refusal("NoJsonForm", text, ExitCode.BAD_ARGUMENTS)
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype.value,
            "shape": list(tensor.shape),
            "data": _values(tensor),
        }
        for tensor in tensors
    ]


def _values(tensor: Tensor) -> list[Any]:
    """Flat; NaN and infinities become null when they are written."""
    if tensor.datatype is Datatype.BYTES:
        return [one.decode("utf-8", "replace") for one in tensor.array.reshape(-1)]
    values: list[Any] = tensor.array.reshape(-1).tolist()
    return values
