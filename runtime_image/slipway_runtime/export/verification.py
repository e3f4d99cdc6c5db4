"""``slipway-runtime verify A B``: the same requests to two models, and how far their answers lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from slipway_runtime.artefact.arrival import arrived
from slipway_runtime.models.difference import Difference, Tolerance, differences, worst
from slipway_runtime.models.loading import load
from slipway_runtime.models.probing import Tensors, synthetic
from slipway_runtime.models.settling import LoadedModel
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.serving.warmup import read_goldens
from slipway_runtime.settings import ModelSettings
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

_ROWS = (1, 3)


@dataclass(frozen=True)
class Verification:
    """The largest differences for each output of the reference, over all requests."""

    requests: int
    outputs: tuple[Difference, ...]
    reference_digest: str
    other_digest: str

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

    Requests come from ``goldens`` (their recorded answers are not looked at), or are made up from the reference's
    signature. With ``written``, requests and the reference's answers are written there as goldens.
    """
    with arrived(reference) as first:
        exact, first_digest = load(first, reference), first.digest
        requests = _requests(exact, goldens)
        expected = [exact.program.infer(one) for one in requests]
    with arrived(other) as second:
        program, second_digest = load(second, other).program, second.digest
        found = [
            difference
            for request, outputs in zip(requests, expected, strict=True)
            for difference in differences(outputs, program.infer(request), tolerance)
        ]
    if written is not None:
        written.write_bytes(goldens_document(requests, expected))
    return Verification(len(requests), tuple(worst(found)), first_digest, second_digest)


def _requests(model: LoadedModel, goldens: Path | None) -> list[Tensors]:
    if goldens is not None:
        return [one.request.inputs for one in read_goldens(goldens)]
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
