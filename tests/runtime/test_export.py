"""Export to other formats, comparison of two models, and of a precision with fp32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.artefact.location import opened
from slipway_runtime.cli import main
from slipway_runtime.models.difference import Tolerance, differences, worst
from slipway_runtime.models.fidelity import compare_with_fp32
from slipway_runtime.models.loading import load
from slipway_runtime.refusal import ExitCode
from slipway_runtime.serving.warmup import read_goldens
from slipway_runtime.settings import Device, ModelSettings, Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor

from tests.runtime.test_models_formats import ROWS, class_folder, linear_onnx

CONFIG = {"class": "network.py:Network", "inputs": ROWS}
NAMES = {"torch-export": "m.pt2", "torchscript": "m.pt", "onnx": "m.onnx"}


@pytest.mark.parametrize("target", NAMES)
def test_an_exported_model_is_the_same_model(tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = class_folder(tmp_path, CONFIG), tmp_path / NAMES[target]
    flags = ["--outputs", '[{"name":"logits","datatype":"FP32","shape":[-1,2]}]', "--inputs", json.dumps(ROWS)]
    assert main(["export", str(folder), "--to", target, "--output", str(output), *flags]) == ExitCode.OK
    text = capsys.readouterr().out
    assert digest_of(output) in text and "logits" in text and "yes" in text
    assert main(["verify", str(folder), str(output), *flags]) == ExitCode.OK


@pytest.mark.parametrize("target", NAMES)
def test_names_that_a_format_does_not_keep_are_matched_by_order(
    tmp_path: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declared = [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}]
    folder, output = class_folder(tmp_path, CONFIG | {"outputs": declared}), tmp_path / NAMES[target]
    code = (folder / "network.py").read_text()
    (folder / "network.py").write_text(code.replace('{"logits": self.linear(x)}', "self.linear(x)"))
    assert main(["export", str(folder), "--to", target, "--output", str(output)]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "scores" in text and ("scores is " in text) is (target != "onnx")


def test_models_that_cannot_be_compared_are_refused_in_words(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TERMINATION_LOG", str(tmp_path / "log"))
    folder, goldens = str(class_folder(tmp_path, CONFIG)), tmp_path / "goldens.json"
    row = {"name": "x", "datatype": "FP32", "shape": [1, 5], "data": [0] * 5}
    goldens.write_text(json.dumps([{"request": {"inputs": [row]}}]))
    nowhere = str(tmp_path / "absent" / "goldens.json")
    for flags, code, words in (
        (
            ["--goldens", str(goldens)],
            ExitCode.ARTEFACT_REFUSED,
            "A does not take the request: input 'x': shape [1, 5]",
        ),
        (["--goldens", nowhere], ExitCode.BAD_ARGUMENTS, "--goldens cannot be read"),
        (["--write-goldens", nowhere], ExitCode.BAD_ARGUMENTS, "--write-goldens"),
    ):
        assert main(["verify", folder, folder, *flags]) == code
        assert words in capfdbinary.readouterr().err.decode()


def test_only_weights_with_a_class_can_be_exported(tmp_path: Path) -> None:
    source = linear_onnx(tmp_path / "m.onnx")
    code = main(["export", str(source), "--to", "torchscript", "--output", str(tmp_path / "m.pt")])
    assert code == ExitCode.ARTEFACT_REFUSED and not (tmp_path / "m.pt").exists()


def test_other_weights_are_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (class_folder(tmp_path / name, CONFIG) for name in ("a", "b"))
    code = (second / "network.py").read_text()
    (second / "network.py").write_text(code.replace("self.linear(x)}", "self.linear(x) + 0.5}"))
    assert main(["verify", str(first), str(second)]) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("logits"))
    assert "NO" in line and float(line.split()[1]) == pytest.approx(0.5, rel=1e-3)
    assert main(["verify", str(first), str(second), "--atol", "0.6"]) == ExitCode.OK


def test_goldens_are_written_and_used(tmp_path: Path) -> None:
    folder, goldens = class_folder(tmp_path, CONFIG), tmp_path / "goldens.json"
    assert main(["verify", str(folder), str(folder), "--write-goldens", str(goldens)]) == ExitCode.OK
    read = read_goldens(goldens)
    assert [one.request.inputs[0].shape for one in read] == [(1, 4), (3, 4)]
    with opened(folder.as_uri(), "") as artefact:
        model = load(artefact, ModelSettings("m", "1", "", folder.as_uri(), device=Device.CPU)).program
    for one in read:
        assert one.expected is not None
        assert np.allclose(model.infer(one.request.inputs)[0].array, one.expected[0].array)
    assert main(["verify", str(folder), str(folder), "--goldens", str(goldens)]) == ExitCode.OK


def tensor(values: Any, datatype: Datatype = Datatype.FP32, name: str = "y") -> Tensor:
    return Tensor(name, datatype, np.array(values, dtype=datatype.numpy))


def test_differences() -> None:
    tolerance = Tolerance(relative=0.1, absolute=0.0)
    (one,) = differences([tensor([1, 10, np.nan, np.inf])], [tensor([1.05, 10, np.nan, np.inf])], tolerance)
    assert one.within and one.absolute == pytest.approx(0.05, rel=1e-3) == one.relative
    (far,) = differences([tensor([1, 10])], [tensor([1, 20])], tolerance)
    assert not far.within and worst([one, far])[0] == worst([far, one])[0]
    for other in ([], [tensor([1])], [tensor([1, 2], Datatype.INT64)], [tensor([1, np.nan])]):
        (found,) = differences([tensor([1, 2])], other, tolerance)
        assert not found.within
    (exact,) = differences([tensor([1, 2], Datatype.INT64)], [tensor([1, 3], Datatype.INT64)], tolerance)
    assert not exact.within
    assert differences([tensor([], Datatype.FP32)], [tensor([], Datatype.FP32)], tolerance)[0].within


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16, Precision.INT8])
def test_a_lower_precision_is_measured_against_fp32(
    tmp_path: Path, precision: Precision, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = class_folder(tmp_path, CONFIG)
    settings = ModelSettings("m", "1", "", folder.as_uri(), device=Device.CPU, precision=precision)
    with opened(folder.as_uri(), "") as artefact:
        loaded = load(artefact, settings)
        compare_with_fp32(artefact, settings, loaded, [], 8)
        compare_with_fp32(artefact, ModelSettings("m", "1", "", folder.as_uri()), loaded, [], 8)
    lines = [json.loads(line) for line in capfdbinary.readouterr().err.splitlines()]
    (line,) = (one for one in lines if one["event"] == "precision-compared")
    assert line["precision"] == precision.value and 0 < line["largest_difference"] < 0.1
    assert not line["beyond_tolerance"] and set(line["outputs"]) == {"logits"}
    assert line["seconds"] > 0 and line["level"] == ("warning" if line["slower_than_fp32"] else "info")


def test_a_precision_that_strays_is_a_warning(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = class_folder(tmp_path, {**CONFIG, "class": "cancel.py:Cancel"})
    (folder / "cancel.py").write_text(
        (folder / "network.py")
        .read_text()
        .replace("class Network", "class Cancel")
        .replace("self.linear(x)}", "(self.linear(x) + 30000) - 30000}")
    )
    assert yaml.safe_load((folder / "config.yaml").read_text())["class"] == "cancel.py:Cancel"
    settings = ModelSettings("m", "1", "", folder.as_uri(), device=Device.CPU, precision=Precision.FP16)
    with opened(folder.as_uri(), "") as artefact:
        compare_with_fp32(artefact, settings, load(artefact, settings), [], 8)
    lines = [json.loads(line) for line in capfdbinary.readouterr().err.splitlines()]
    (line,) = (one for one in lines if one["event"] == "precision-compared")
    assert line["beyond_tolerance"] and line["level"] == "warning"


COUNTER = """class Counter:
    def predict(self, inputs):
        yield from ({"y": inputs["x"] + k} for k in range(PARTS))
"""


@pytest.mark.parametrize(
    ("first", "second", "code", "words"),
    [
        ("2", "2", ExitCode.OK, "y "),
        ("2", "3", 1, "NO 2 against 3"),
        ("0", "0", ExitCode.BAD_ARGUMENTS, "NothingCompared"),
    ],
)
def test_all_parts_of_an_answer_are_compared(
    tmp_path: Path, first: str, second: str, code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, parts in zip(folders, (first, second), strict=True):
        folder.mkdir()
        (folder / "code.py").write_text(COUNTER.replace("PARTS", parts))
        given = {"datatype": "FP32", "shape": [-1]}
        config = {"handler": "code.py", "inputs": [{"name": "x"} | given], "outputs": [{"name": "y"} | given]}
        (folder / "config.yaml").write_text(json.dumps(config))
    assert main(["verify", *map(str, folders)]) == code
    assert words in "".join(capfd.readouterr())
