"""Arguments of a program that it need not be given, and why a program is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from slipway_runtime.artefact.description import PythonClass
from slipway_runtime.models.source import class_in
from slipway_runtime.refusal import Refusal

from tests.runtime.programs import script
from tests.runtime.test_models_formats import answer, loaded

OPTIONAL = """
import torch
from torch import Tensor
from typing import Optional


class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0]))

    def forward(self, x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None, steps: int = 1):
        y = x * self.scale
        if mask is not None:
            y = y * mask
        if bias is not None:
            y = y + bias
        return y
"""


@pytest.mark.parametrize("scripted", [False, True])
def test_tensors_that_a_model_need_not_be_given_are_inputs_where_declared(tmp_path: Path, scripted: bool) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "network.py").write_text(OPTIONAL)
    network = class_in(PythonClass(place / "network.py"), lambda one: hasattr(one, "forward"), "module")()
    if scripted:
        script(network, place / "model.pt")
    else:
        save_file(network.state_dict(), place / "model.safetensors")
    said = {} if scripted else {"class": "network.py:Masked"}
    values = {"x": [[1.0, 2.0]], "mask": [[0.0, 1.0]], "bias": [[5.0, 5.0]]}
    cases = ((["x"], [2, 4]), (["bias", "x"], [7, 9]), (["mask", "x"], [0, 4]), (["x", "mask", "bias"], [5, 9]))
    for names, want in cases:
        inputs = [{"name": name, "datatype": "FP32", "shape": [-1, 2]} for name in names]
        (place / "config.yaml").write_text(yaml.safe_dump({**said, "inputs": inputs}))
        model = loaded(place, tmp_path)
        assert model.program.signature.batched
        [found] = answer(model, **{name: values[name] for name in names}).values()
        assert found == [want]
    for names in (["x", "steps"], ["mask"]):
        inputs = [{"name": name, "datatype": "FP32", "shape": [-1, 2]} for name in names]
        (place / "config.yaml").write_text(yaml.safe_dump({**said, "inputs": inputs}))
        with pytest.raises(Refusal, match="ContractMismatch"):
            loaded(place, tmp_path)


def test_a_model_that_fails_says_how(tmp_path: Path) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "network.py").write_text(OPTIONAL.replace("return y", "return float(y.sum())"))
    save_file({"scale": torch.ones(1)}, place / "model.safetensors")
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    (place / "config.yaml").write_text(yaml.safe_dump({"class": "network.py:Masked", "inputs": inputs}))
    with pytest.raises(Refusal, match="datatypes and shapes: output 'output_0' is no tensor but float"):
        loaded(place, tmp_path)
