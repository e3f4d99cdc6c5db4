"""Number formats of torch modules: casting, and int8 by dynamic quantization."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from slipway_runtime.refusal import Refusal
from slipway_runtime.settings import Precision

_DTYPES = {Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}


def apply_precision(
    module: Any, precision: Precision, device: torch.device, *, scripted: bool
) -> tuple[Any, torch.dtype | None]:
    """The module in the wanted precision, and the dtype to which floating inputs are cast (None: as they come).

    int8 keeps activations in fp32 and quantizes the weights of linear and recurrent layers, on the CPU only.
    Raises Refusal (PrecisionNotSupported).
    """
    dtype = _DTYPES.get(precision)
    if dtype is not None:
        return module.to(dtype), dtype
    if precision is Precision.FP32:
        return module, None
    if device.type != "cpu":
        raise Refusal("PrecisionNotSupported", "precision int8: on the CPU only, use fp16 or bf16 on a GPU")
    if scripted:
        raise Refusal(
            "PrecisionNotSupported", "precision int8: a TorchScript program is quantized before it is exported"
        )
    return _quantized(module), None


def _quantized(module: Any) -> Any:
    quantize = getattr(getattr(torch.ao, "quantization", None), "quantize_dynamic", None)
    if quantize is None:
        raise Refusal("PrecisionNotSupported", "precision int8: this torch has no dynamic quantization any more")
    with warnings.catch_warnings():
        # torch.ao announces its retirement on every call; the operator of a server cannot act on it.
        warnings.simplefilter("ignore")
        result = quantize(module, {torch.nn.Linear, torch.nn.LSTM, torch.nn.GRU}, dtype=torch.qint8)
    quantized = [one for one in result.modules() if ".quantized." in type(one).__module__]
    if not quantized:
        raise Refusal("PrecisionNotSupported", "precision int8: the model has no linear or recurrent layer to quantize")
    return result
