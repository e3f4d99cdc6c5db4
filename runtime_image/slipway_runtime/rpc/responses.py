"""Responses of the inference service, to protobuf. Tensors are always raw: clients read nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from slipway_runtime.protocol.answer import selected_outputs, top_classes
from slipway_runtime.protocol.rawdata import encode_raw
from slipway_runtime.protocol.request import InferRequest
from slipway_runtime.rpc.wire import bytes_field, number_field, packed_field, text_field
from slipway_runtime.tensors.tensor import Signature, Tensor

FINAL_RESPONSE = "triton_final_response"


def encode_infer(
    model: str,
    version: str,
    request: InferRequest,
    outputs: Sequence[Tensor],
    signature: Signature,
    *,
    final: bool | None = None,
) -> bytes:
    """``ModelInferResponse``; ``final`` says whether it is the last of its request. Raises RequestFailure (400)."""
    parts = [text_field(1, model), text_field(2, version), text_field(3, request.id)]
    if final is not None:
        parts.append(_final_parameter(final))
    blobs = []
    for tensor, wanted in selected_outputs(request, outputs):
        chosen = top_classes(tensor, wanted.classes, signature.batched) if wanted.classes else tensor
        entry = text_field(1, chosen.name) + text_field(2, chosen.datatype) + packed_field(3, chosen.shape)
        parts.append(bytes_field(5, entry))
        blobs.append(bytes_field(6, encode_raw(chosen.datatype, chosen.array)))
    return b"".join((*parts, *blobs))


def encode_last(model: str, version: str, request: InferRequest) -> bytes:
    """An empty ``ModelInferResponse`` that says: there were all parts of the answer."""
    return text_field(1, model) + text_field(2, version) + text_field(3, request.id) + _final_parameter(True)


def _final_parameter(final: bool) -> bytes:
    return bytes_field(4, text_field(1, FINAL_RESPONSE) + bytes_field(2, number_field(1, int(final))))


def stream_answer(response: bytes) -> bytes:
    """``ModelStreamInferResponse`` with an inference response."""
    return bytes_field(2, response)


def stream_failure(model: str, version: str, request_id: str, text: str) -> bytes:
    """``ModelStreamInferResponse`` with an error, and with the id of its request, so that a client can tell whose."""
    response = text_field(1, model) + text_field(2, version) + text_field(3, request_id)
    return text_field(1, text) + bytes_field(2, response)
