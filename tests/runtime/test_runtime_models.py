"""Loading programs: what they take and give, and whether that is what was declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from slipway_runtime.artefact.location import opened
from slipway_runtime.models.loading import LoadedModel, load
from slipway_runtime.models.probing import synthetic
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.serving.warmup import read_goldens, warm_up
from slipway_runtime.settings import Device, Format, ModelSettings, Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor, TensorSpec

from tests.runtime.programs import script
from tests.runtime.test_runtime_artefact import Change, rewritten

FP32_4 = [{"name": "features", "datatype": "FP32", "shape": [-1, 4]}]
LOGITS = [{"name": "logits", "datatype": "FP32", "shape": [-1, 2]}]


def loaded(path: Path, inputs: Any = None, outputs: Any = None, **changes: Any) -> LoadedModel:
    settings = ModelSettings(
        "m",
        "v1",
        "r",
        path.as_uri(),
        inputs_json=json.dumps(inputs) if inputs else "",
        outputs_json=json.dumps(outputs) if outputs else "",
        **{"device": Device.CPU, **changes},
    )
    with opened(settings.uri, "") as artefact:
        return load(artefact, settings)


def specs(entries: Any) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(one["name"], Datatype(one["datatype"]), tuple(one["shape"])) for one in entries)


@pytest.mark.parametrize("file", ["weighted.pt", "traced.pt"])
def test_declared_torchscript(model_files: dict[str, Path], file: str) -> None:
    model = loaded(model_files[file], FP32_4, LOGITS).program
    assert (model.signature.inputs, model.signature.outputs) == (specs(FP32_4), specs(LOGITS))
    assert model.signature.batched and not model.signature.open
    rows = np.ones((3, 4), dtype=np.float32)
    (output,) = model.infer([Tensor("features", Datatype.FP32, rows)])
    assert (output.name, output.shape) == ("logits", (3, 2))


def test_undeclared_torchscript_is_guessed_from_its_weights(model_files: dict[str, Path]) -> None:
    signature = loaded(model_files["weighted.pt"]).program.signature
    assert signature.inputs == (TensorSpec("x", Datatype.FP32, (-1, 4)),)
    assert signature.outputs == (TensorSpec("output_0", Datatype.FP32, (-1, 2)),)
    assert signature.batched and signature.open


def test_undeclared_torchscript_without_weights_is_left_open(model_files: dict[str, Path]) -> None:
    model = loaded(model_files["doubler.pt"])
    assert model.program.signature.open and not model.program.signature.batched and model.free is None
    (output,) = model.program.infer([Tensor("x", Datatype.INT64, np.array([[[1, 2]]]))])
    assert output.array.tolist() == [[[2, 4]]] and output.datatype is Datatype.INT64


def test_exported_programs_say_what_they_take(model_files: dict[str, Path]) -> None:
    model = loaded(model_files["two.pt2"])
    assert [spec.name for spec in model.program.signature.outputs] == ["logits", "next"]
    assert model.program.signature.batched and model.max_rows == 64
    inputs = synthetic(model.program.signature.inputs, rows=5)
    outputs = model.program.infer(inputs)
    assert [one.name for one in outputs] == ["logits", "next"]
    assert (outputs[1].array == inputs[1].array + 1).all()


def test_exported_programs_under_declared_names(model_files: dict[str, Path]) -> None:
    inputs = [{"name": "b", "datatype": "FP32", "shape": [-1, 4]}, {"name": "a", "datatype": "INT64", "shape": [-1, 2]}]
    outputs = [
        {"name": "next", "datatype": "INT64", "shape": [-1, 2]},
        {"name": "logits", "datatype": "FP32", "shape": [-1, 2]},
    ]
    model = loaded(model_files["two.pt2"], inputs, outputs).program
    values = (Tensor("a", Datatype.INT64, np.array([[1, 2]])), Tensor("b", Datatype.FP32, np.ones((1, 4), np.float32)))
    result = model.infer(values)
    assert [one.name for one in result] == ["next", "logits"]
    assert result[0].array.tolist() == [[2, 3]]


def changed(entries: Any, **changes: Any) -> Any:
    return [{**entries[0], **changes}, *entries[1:]]


TWO_IN = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}, {"name": "y", "datatype": "INT64", "shape": [-1, 2]}]
TWO_OUT = [
    {"name": "logits", "datatype": "FP32", "shape": [-1, 2]},
    {"name": "next", "datatype": "INT64", "shape": [-1, 2]},
]


@pytest.mark.parametrize(
    ("file", "inputs", "outputs", "words"),
    [
        ("weighted.pt", changed(FP32_4, shape=[-1, 5]), None, "fails on inputs of the declared"),
        ("weighted.pt", changed(FP32_4, datatype="INT64"), None, "fails on inputs of the declared"),
        ("weighted.pt", FP32_4 * 1 + [{"name": "z", "datatype": "FP32", "shape": [1]}], None, "2 inputs are declared"),
        ("weighted.pt", FP32_4, changed(LOGITS, shape=[-1, 3]), "output 'logits': declared FP32 \\[-1, 3\\]"),
        ("weighted.pt", FP32_4, changed(LOGITS, datatype="FP64"), "output 'logits': declared FP64"),
        ("weighted.pt", FP32_4, LOGITS + changed(LOGITS, name="b"), "2 outputs are declared"),
        ("weighted.pt", changed(FP32_4, datatype="BYTES"), None, "no BYTES"),
        ("two.pt2", changed(TWO_IN, datatype="FP64"), None, "input 'x': declared FP64"),
        ("two.pt2", changed(TWO_IN, shape=[-1, -1]), None, "input 'x': declared shape"),
        ("two.pt2", changed(TWO_IN, shape=[4]), None, "input 'x': declared shape"),
        ("two.pt2", changed(TWO_IN, name="z"), None, "input 'z' is declared, the model has only: x, y"),
        ("two.pt2", TWO_IN, changed(TWO_OUT, datatype="INT64"), "output 'logits': declared INT64"),
    ],
)
def test_a_broken_contract_is_refused_by_name(
    model_files: dict[str, Path], file: str, inputs: Any, outputs: Any, words: str
) -> None:
    with pytest.raises(Refusal, match=words) as caught:
        loaded(model_files[file], inputs, outputs)
    assert (caught.value.reason, caught.value.code) == ("ContractMismatch", ExitCode.ARTEFACT_REFUSED)


@pytest.mark.parametrize("text", ["{", "[{}]", '[{"name":"x","datatype":"FP31","shape":[1]}]',
                                  '[{"name":"x","datatype":"FP32","shape":[-2]}]'])  # fmt: skip
def test_an_unreadable_contract_is_a_bad_argument(model_files: dict[str, Path], text: str) -> None:
    path = model_files["weighted.pt"]
    settings = ModelSettings("m", "v1", "r", path.as_uri(), inputs_json=text)
    with pytest.raises(Refusal) as caught, opened(path.as_uri(), "") as artefact:
        load(artefact, settings)
    assert caught.value.code is ExitCode.BAD_ARGUMENTS


def test_a_narrower_contract_is_kept(model_files: dict[str, Path]) -> None:
    inputs = [{**one, "shape": [2, one["shape"][1]]} for one in TWO_IN]
    signature = loaded(model_files["two.pt2"], inputs).program.signature
    assert signature.inputs == specs(inputs) and not signature.batched


def test_formats_and_precisions(model_files: dict[str, Path]) -> None:
    weighted, two = model_files["weighted.pt"], model_files["two.pt2"]
    assert loaded(weighted, FP32_4, format=Format.TORCHSCRIPT).program.platform == "pytorch_torchscript"
    assert loaded(two, format=Format.TORCH_EXPORT).program.platform == "pytorch_export"
    refused: list[tuple[Path, dict[str, Any], str]] = [
        (weighted, {"format": Format.TORCH_EXPORT}, "NotAModel"),
        (weighted, {"format": Format.ONNX}, "NotAModel"),
        (weighted, {"precision": Precision.INT8}, "PrecisionNotSupported"),
        (two, {"precision": Precision.FP16}, "PrecisionNotSupported"),
    ]
    for path, changes, reason in refused:
        with pytest.raises(Refusal, match=reason):
            loaded(path, **changes)
    exact = loaded(weighted, FP32_4, LOGITS).program
    half = loaded(weighted, FP32_4, LOGITS, precision=Precision.BF16).program
    rows = [Tensor("features", Datatype.FP32, np.ones((2, 4), dtype=np.float32))]
    (coarse,), (fine,) = half.infer(rows), exact.infer(rows)
    assert coarse.datatype is Datatype.FP32
    assert np.allclose(coarse.array, fine.array, atol=0.05) and not np.array_equal(coarse.array, fine.array)


def test_a_gpu_that_is_not_there(model_files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Refusal, match="NoGPU"):
        loaded(model_files["weighted.pt"], device=Device.CUDA)


class Recurrent(torch.nn.Module):
    """Dimension 0 is time here: rows are not independent, though as many come out as go in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x @ self.weight, 0)


class Pooled(torch.nn.Module):
    """The mean over a free dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).mean((2, 3))


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 3)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.table(ids).sum(1), ids


class FixedBatch(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(1, 4)


def test_dependent_rows_are_never_batched(tmp_path: Path) -> None:
    script(Recurrent().eval(), tmp_path / "m.pt")
    declared = [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    assert not loaded(tmp_path / "m.pt", declared).program.signature.batched
    assert not loaded(tmp_path / "m.pt").program.signature.batched


def test_free_dimensions_get_a_size_that_works(tmp_path: Path) -> None:
    script(Pooled().eval(), tmp_path / "m.pt")
    model = loaded(tmp_path / "m.pt")
    assert model.program.signature.inputs == (TensorSpec("x", Datatype.FP32, (-1, 3, -1, -1)),)
    assert model.program.signature.batched and model.free == 32


def test_indices_are_guessed_and_outputs_numbered(tmp_path: Path) -> None:
    script(Embedded().eval(), tmp_path / "m.pt")
    signature = loaded(tmp_path / "m.pt").program.signature
    assert signature.inputs == (TensorSpec("ids", Datatype.INT64, (-1, -1)),)
    assert [spec.name for spec in signature.outputs] == ["output_0", "output_1"]


def test_a_model_of_one_row_only_is_not_batched(tmp_path: Path) -> None:
    script(FixedBatch().eval(), tmp_path / "m.pt")
    declared = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert not loaded(tmp_path / "m.pt", declared).program.signature.batched


def test_a_damaged_program_is_refused(tmp_path: Path, model_files: dict[str, Path]) -> None:
    damage = [("weighted.pt", b"def forward", b"def"), ("two.pt2", b"aten.linear.default", b"aten.nothing.default")]
    for name, old, new in damage:
        path = rewritten(model_files[name], tmp_path / name, replacing(old, new))
        with pytest.raises(Refusal) as caught:
            loaded(path)
        assert caught.value.code is ExitCode.ARTEFACT_REFUSED


def replacing(old: bytes, new: bytes) -> Change:
    return lambda _, data: data.replace(old, new)


def golden(value: float, expected: list[float], width: int = 4) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, width], "data": [value] * width}
    output = {"name": "y", "datatype": "FP32", "shape": [1, width], "data": expected}
    return {"request": {"inputs": [tensor]}, "response": {"model_name": "m", "outputs": [output]}}


def test_goldens_warm_the_model(
    tmp_path: Path, model_files: dict[str, Path], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    declared = (
        [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
    )
    model = loaded(model_files["doubler.pt"], *declared)
    file = tmp_path / "goldens.json"
    file.write_text(json.dumps([golden(1, [2] * 4), golden(2, [5] * 4), {"request": golden(3, [])["request"]}]))
    timings = warm_up(model.program, 10, [1, 32], model.free, read_goldens(file))
    assert len(timings) == 10
    lines = [json.loads(line) for line in capfdbinary.readouterr().err.splitlines()]
    assert [line["request"] for line in lines if line["event"] == "golden-differs"] == [1]
    file.write_text(json.dumps([golden(1, [2] * 5, width=5)]))
    with pytest.raises(Refusal, match="WarmupFailed: golden request 0: input 'x'"):
        warm_up(model.program, 10, [1], model.free, read_goldens(file))
    for text in ("nothing", "[{}]", '[{"request": {"inputs": []}}]'):
        file.write_text(text)
        with pytest.raises(Refusal, match="BadWarmupFile"):
            read_goldens(file)


def test_a_folder_of_goldens_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "goldens"
    hidden = folder / "..2026_11_30"
    hidden.mkdir(parents=True)
    (hidden / "a.json").write_text(json.dumps([golden(1, [2] * 4)]))
    (hidden / "b.json").write_text(json.dumps([golden(3, [6] * 4)]))
    for name in ("b.json", "a.json"):
        (folder / name).symlink_to(hidden / name)
    assert [entry.request.inputs[0].array.tolist()[0][0] for entry in read_goldens(folder)] == [1, 3]
