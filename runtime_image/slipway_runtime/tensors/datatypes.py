"""The datatypes of the Open Inference Protocol and how NumPy holds their bytes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np


class Datatype(StrEnum):
    """Datatype names exactly as they appear on the wire."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that carries it. BF16 has none, so its bits travel as uint16; BYTES is object."""
        return _NUMPY[self]

    @property
    def is_float(self) -> bool:
        """Whether values are floating point (and may therefore be NaN)."""
        return self in _FLOATS

    @property
    def has_json_form(self) -> bool:
        """FP16 and BF16 exist only as binary data (Triton and KServe agree on that)."""
        return self not in (Datatype.FP16, Datatype.BF16)


_FLOATS = frozenset({Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16})
_NUMPY: dict[Datatype, np.dtype[Any]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype("u1"),
    Datatype.UINT16: np.dtype("<u2"),
    Datatype.UINT32: np.dtype("<u4"),
    Datatype.UINT64: np.dtype("<u8"),
    Datatype.INT8: np.dtype("i1"),
    Datatype.INT16: np.dtype("<i2"),
    Datatype.INT32: np.dtype("<i4"),
    Datatype.INT64: np.dtype("<i8"),
    Datatype.FP16: np.dtype("<f2"),
    Datatype.FP32: np.dtype("<f4"),
    Datatype.FP64: np.dtype("<f8"),
    Datatype.BF16: np.dtype("<u2"),
    Datatype.BYTES: np.dtype(object),
}
