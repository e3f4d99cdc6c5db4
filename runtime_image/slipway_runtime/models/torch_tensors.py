"""Between the protocol's tensors and torch's, without copying where memory can be shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

TORCH_DTYPES: dict[Datatype, torch.dtype] = {
    Datatype.BOOL: torch.bool,
    Datatype.UINT8: torch.uint8,
    Datatype.UINT16: torch.uint16,
    Datatype.UINT32: torch.uint32,
    Datatype.UINT64: torch.uint64,
    Datatype.INT8: torch.int8,
    Datatype.INT16: torch.int16,
    Datatype.INT32: torch.int32,
    Datatype.INT64: torch.int64,
    Datatype.FP16: torch.float16,
    Datatype.FP32: torch.float32,
    Datatype.FP64: torch.float64,
    Datatype.BF16: torch.bfloat16,
}
DATATYPES = {dtype: datatype for datatype, dtype in TORCH_DTYPES.items()}


def to_torch(tensor: Tensor, device: torch.device) -> torch.Tensor:
    """The torch tensor, on ``device``. Raises TypeError for BYTES, which torch cannot hold."""
    if tensor.datatype is Datatype.BYTES:
        raise TypeError("torch has no tensors of BYTES")
    array = tensor.array if tensor.array.flags.writeable else tensor.array.copy()
    value = torch.from_numpy(array)
    if tensor.datatype is Datatype.BF16:
        value = value.view(torch.bfloat16)
    return value if device.type == "cpu" else value.to(device)


def from_torch(name: str, value: Any) -> Tensor:
    """The protocol's tensor. Raises TypeError for anything but a dense tensor of a known dtype."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"output '{name}' is no tensor but {type(value).__name__}")
    datatype = DATATYPES.get(value.dtype)
    if datatype is None or value.layout is not torch.strided:
        raise TypeError(f"output '{name}' is a {value.layout} tensor of {value.dtype}, which has no datatype")
    dense = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    bits = dense.view(torch.uint16) if datatype is Datatype.BF16 else dense
    return Tensor(name, datatype, np.asarray(bits.numpy()))


def named_outputs(result: Any) -> list[tuple[str, Any]]:
    """Names and values of what a model returned: one tensor, a tuple or list, a dict, or a named tuple.

    Values without a name are called ``output_0``, ``output_1`` and so on.
    """
    if isinstance(result, Mapping):
        return [(str(name), value) for name, value in result.items()]
    fields = getattr(result, "_fields", None)
    if fields is not None:
        return list(zip(fields, result, strict=True))
    values: Sequence[Any] = result if isinstance(result, (tuple, list)) else (result,)
    return [(f"output_{index}", value) for index, value in enumerate(values)]
