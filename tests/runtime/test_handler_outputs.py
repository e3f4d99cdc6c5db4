"""What a Python handler may give for an output: the declared datatype comes of it, or a failure that says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from slipway_runtime.models.handler import HandlerProgram
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Signature, TensorSpec

from tests.runtime.harness import fetch, json_request
from tests.runtime.repository_server import RepositoryServer, model


def given(datatype: Datatype, value: Any) -> Any:
    class Handler:
        def predict(self, inputs: Any) -> Any:
            return {"y": value}

    signature = Signature((), (TensorSpec("y", datatype, (-1,)),), batched=False)
    [output] = HandlerProgram(Handler(), signature, False).infer(())
    assert output.datatype is datatype and output.array.dtype == datatype.numpy
    return output.array.tolist()


BITS_OF_ONE = 0x3F80


@pytest.mark.parametrize(
    ("datatype", "value", "want"),
    [
        (Datatype.FP32, [0.5, 2], [0.5, 2.0]),
        (Datatype.FP32, np.array([0.5]), [0.5]),
        (Datatype.FP32, np.array([3], np.int64), [3.0]),
        (Datatype.FP16, np.array([0.5], np.float32), [0.5]),
        (Datatype.FP64, torch.tensor([0.5]), [0.5]),
        (Datatype.FP32, torch.tensor([0.5], dtype=torch.bfloat16), [0.5]),
        (Datatype.BF16, torch.tensor([1.0]), [BITS_OF_ONE]),
        (Datatype.BF16, [1.0], [BITS_OF_ONE]),
        (Datatype.BF16, np.array([BITS_OF_ONE], np.uint16), [BITS_OF_ONE]),
        (Datatype.INT32, [1, -2], [1, -2]),
        (Datatype.UINT8, np.array([255]), [255]),
        (Datatype.UINT64, [2**64 - 1], [2**64 - 1]),
        (Datatype.INT8, torch.tensor([-128]), [-128]),
        (Datatype.BOOL, [True, False], [True, False]),
        (Datatype.BYTES, ["a", b"b", 1], [b"a", b"b", b"1"]),
        (Datatype.FP32, 0.5, 0.5),
        (Datatype.FP32, np.arange(6.0).reshape(2, 3).T, [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]),
    ],
)
def test_numbers_become_what_is_declared(datatype: Datatype, value: Any, want: Any) -> None:
    assert given(datatype, value) == want


@pytest.mark.parametrize(
    ("datatype", "value", "words"),
    [
        (Datatype.INT32, [0.5], "of float64, declared is INT32"),
        (Datatype.INT32, torch.tensor([0.5]), "of float32, declared is INT32"),
        (Datatype.BOOL, [1], "declared is BOOL"),
        (Datatype.INT8, [True], "of bool, declared is INT8"),
        (Datatype.FP32, [True], "of bool, declared is FP32"),
        (Datatype.FP32, ["a"], "declared is FP32"),
        (Datatype.FP32, None, "of object, declared is FP32"),
        (Datatype.FP32, [1j], "of complex128, declared is FP32"),
        (Datatype.BF16, torch.tensor([1]), "declared is BF16"),
        (Datatype.INT8, torch.tensor([1.0], dtype=torch.bfloat16), "declared is INT8"),
        (Datatype.UINT8, [256], "numbers beyond UINT8"),
        (Datatype.UINT64, [-1], "numbers beyond UINT64"),
        (Datatype.INT64, np.array([2**63], np.uint64), "numbers beyond INT64"),
    ],
)
def test_other_kinds_and_numbers_that_do_not_fit_are_failures(datatype: Datatype, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        given(datatype, value)


def test_a_handler_with_numpys_defaults_serves_what_it_declares(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text(
        "class H:\n    def predict(self, inputs):\n        return [[0.5] * 2 for _ in inputs['x']]\n"
    )
    (tmp_path / "config.yaml").write_text(
        "handler: h.py\ninputs: [{name: x, datatype: FP32, shape: [-1, 4]}]\n"
        "outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]\n"
    )
    with RepositoryServer(model(tmp_path)) as server:
        status, answer, _ = fetch(server.address, "POST", "/v2/models/m/infer", json_request(np.ones((3, 4))))
        assert status == 200 and b'"datatype":"FP32","shape":[3,2]' in answer
