"""ONNX, weights with a model class, Python handlers, and the folders of other servers."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from onnx import TensorProto, helper
from safetensors.torch import save_file
from slipway_runtime.artefact.archive import ArchiveLimits, unpack
from slipway_runtime.artefact.format import ModelKind
from slipway_runtime.artefact.location import opened
from slipway_runtime.artefact.triton import parse_text_format
from slipway_runtime.fetch.store import Store
from slipway_runtime.models.loading import LoadedModel, load
from slipway_runtime.refusal import Refusal
from slipway_runtime.settings import Device, ModelSettings, Precision
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import Tensor, TensorSpec

from tests.runtime.harness import fetch, serving
from tests.runtime.programs import Weighted, script

NETWORK = """
import torch

class Block(torch.nn.Linear):
    pass

class Network(torch.nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = torch.nn.Linear(width, 2)

    def forward(self, x):
        return {"logits": self.linear(x)}
"""
HANDLER = """
import json
import numpy as np

class Reverser:
    def load(self, context):
        self.suffix = context.arguments["suffix"] + (context.folder / "words.txt").read_text().strip()

    def preprocess(self, inputs):
        return [one.decode() for one in inputs["text"].reshape(-1)]

    def predict(self, texts):
        return [text[::-1] + self.suffix for text in texts]

    def postprocess(self, texts):
        return {"text": texts, "length": np.array([len(one) for one in texts], dtype=np.int64)}
"""


def loaded(path: Path, tmp_path: Path, **changes: Any) -> LoadedModel:
    settings = ModelSettings("m", "v1", "r", path.as_uri(), **{"device": Device.CPU, **changes})
    with opened(settings.uri, "", store=Store(tmp_path / "store")) as artefact:
        return load(artefact, settings)


def linear_onnx(path: Path, *, location: str = "") -> Path:
    """y = x @ w for rows of four numbers, w = 0 … 7; the weights in a file of their own at ``location``."""
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 2], values.tobytes(), raw=True)
    if location:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("length", str(values.nbytes))):
            entry = weights.external_data.add()
            entry.key, entry.value = key, value
    rows, answers = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("x", 4), ("y", 2)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [rows], [answers], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def answer(model: LoadedModel, **inputs: Any) -> dict[str, list[Any]]:
    tensors = [
        Tensor(spec.name, spec.datatype, np.asarray(inputs[spec.name], dtype=spec.datatype.numpy))
        for spec in model.program.signature.inputs
    ]
    return {one.name: one.array.tolist() for one in model.program.infer(tensors)}


def test_onnx(tmp_path: Path) -> None:
    model = loaded(linear_onnx(tmp_path / "m.onnx"), tmp_path)
    signature = model.program.signature
    assert signature.inputs == (TensorSpec("x", Datatype.FP32, (-1, 4)),) and signature.batched and not signature.open
    assert model.program.platform == "onnxruntime_onnx"
    assert answer(model, x=[[1, 0, 0, 0], [0, 1, 0, 0]]) == {"y": [[0, 1], [2, 3]]}
    renamed = json.dumps([{"name": "features", "datatype": "FP32", "shape": [-1, 4]}])
    assert answer(loaded(tmp_path / "m.onnx", tmp_path, inputs_json=renamed), features=[[0, 0, 1, 0]]) == {
        "y": [[4, 5]]
    }
    with pytest.raises(Refusal, match="ContractMismatch: input 'x': declared FP64"):
        loaded(tmp_path / "m.onnx", tmp_path, inputs_json='[{"name":"x","datatype":"FP64","shape":[-1,4]}]')
    with pytest.raises(Refusal, match="PrecisionNotSupported"):
        loaded(tmp_path / "m.onnx", tmp_path, precision=Precision.FP16)


def test_onnx_of_texts(tmp_path: Path) -> None:
    names = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in ("a", "b")]
    graph = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "g", names[:1], names[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    assert answer(loaded(tmp_path / "m.onnx", tmp_path), a=["ä".encode(), b"b"]) == {"b": ["ä".encode(), b"b"]}


@pytest.mark.parametrize(("location", "harmless"), [("w.bin", True), ("../w.bin", False), ("/etc/hostname", False)])
def test_onnx_weights_stay_in_the_folder(tmp_path: Path, location: str, harmless: bool) -> None:
    folder = tmp_path / "v1"
    folder.mkdir()
    for place in (folder, tmp_path):
        (place / "w.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    linear_onnx(folder / "model.onnx", location=location)
    if harmless:
        assert answer(loaded(folder, tmp_path), x=[[1, 0, 0, 0]]) == {"y": [[0, 1]]}
    else:
        with pytest.raises(Refusal, match="LoadFailed: ONNX Runtime"):
            loaded(folder, tmp_path)


def test_damaged_onnx(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(linear_onnx(tmp_path / "m.onnx").read_bytes()[:60])
    with pytest.raises(Refusal, match="LoadFailed"):
        loaded(tmp_path / "m.onnx", tmp_path)


def class_folder(tmp_path: Path, config: dict[str, Any], weights: str = "model.safetensors") -> Path:
    folder = tmp_path / "v1"
    folder.mkdir(exist_ok=True)
    state = {"linear.weight": torch.arange(8.0).reshape(2, 4), "linear.bias": torch.ones(2)}
    if weights.endswith(".safetensors"):
        save_file(state, folder / weights)
    else:
        nested = {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}
        torch.save(nested, folder / weights, _use_new_zipfile_serialization=not weights.startswith("old"))
    (folder / "network.py").write_text(NETWORK)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


ROWS = [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


@pytest.mark.parametrize("weights", ["model.safetensors", "weights.pt", "old.pth"])
def test_weights_with_a_model_class(tmp_path: Path, weights: str) -> None:
    config = {"class": "network.py:Network", "inputs": ROWS, "batching": {"maxSize": 8}}
    model = loaded(class_folder(tmp_path, config, weights), tmp_path)
    assert model.program.signature.batched and model.max_rows == 8 and not model.program.signature.open
    assert answer(model, x=[[1, 0, 0, 0]]) == {"logits": [[1, 5]]}
    apart = loaded(class_folder(tmp_path, {**config, "batching": {"rowWise": False}}, weights), tmp_path)
    assert not apart.program.signature.batched


def test_a_model_class_without_declared_inputs(tmp_path: Path) -> None:
    model = loaded(class_folder(tmp_path, {"class": "network.py:Network"}), tmp_path)
    assert model.program.signature.inputs == (TensorSpec("x", Datatype.FP32, (-1, 4)),)
    assert model.program.signature.open


@pytest.mark.parametrize("precision", [Precision.FP16, Precision.BF16, Precision.INT8])
def test_precisions_of_a_model_class(tmp_path: Path, precision: Precision) -> None:
    folder = class_folder(tmp_path, {"class": "network.py:Network", "inputs": ROWS})
    exact, coarse = (answer(loaded(folder, tmp_path, precision=one), x=[[0.3, 0.7, 0.1, 0.9]])["logits"]
                     for one in (Precision.FP32, precision))  # fmt: skip
    assert np.allclose(exact, coarse, atol=0.1) and exact != coarse


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"class": "network.py"}, "it has Block, Network; name it"),
        ({"class": "network.py:Missing"}, "has no class Missing"),
        ({"class": "network.py:Network", "arguments": {"width": 5}}, "the weights do not fit Network"),
        ({"class": "network.py:Network", "arguments": {"deep": 5}}, "TypeError"),
        ({"class": "../network.py:Network"}, "leads out of the model's folder"),
        ({"class": "/network.py:Network"}, "leads out of the model's folder"),
        ({"class": "absent.py:Network"}, "no file 'absent.py'"),
        ({"class": "network:Network"}, "form file.py:Class"),
        ({"clas": "network.py:Network"}, "unknown field `clas`"),
        ({"class": "network.py:Network", "handler": "network.py"}, "not both"),
        ({"class": "network.py:Network", "inputs": [{"name": "x", "datatype": "F", "shape": [1]}]}, "datatype"),
        ({"class": "network.py:Network", "batching": {"maxSize": 0}}, "maxSize"),
        ({}, "weights without a program"),
    ],
)
def test_a_bad_model_folder_says_why(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        loaded(class_folder(tmp_path, config), tmp_path)


def test_lone_weights_name_the_remedy(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(Refusal, match="names the model's class"):
        loaded(tmp_path / "model.safetensors", tmp_path)


def test_a_checkpoint_with_code_in_it_is_refused(tmp_path: Path) -> None:
    folder = class_folder(tmp_path, {"class": "network.py:Network", "model": "model.pt"})
    torch.save({"linear": Gadget()}, folder / "model.pt")
    with pytest.raises(Refusal, match="UnsafeModel: the checkpoint holds Python objects"):
        loaded(folder, tmp_path)
    assert not Gadget.called


class Gadget:
    called: list[int] = []  # noqa: RUF012

    def __reduce__(self) -> tuple[Any, ...]:
        return Gadget.called.append, (1,)


def handler_folder(tmp_path: Path, code: str = HANDLER) -> Path:
    folder = tmp_path / "handler"
    folder.mkdir()
    (folder / "code.py").write_text(code)
    (folder / "words.txt").write_text("!\n")
    config = {
        "handler": "code.py",
        "arguments": {"suffix": "?"},
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [
            {"name": "text", "datatype": "BYTES", "shape": [-1]},
            {"name": "length", "datatype": "INT64", "shape": [-1]},
        ],
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def test_a_python_handler(tmp_path: Path) -> None:
    model = loaded(handler_folder(tmp_path), tmp_path)
    assert model.program.signature.batched and model.program.platform == "python"
    assert answer(model, text=[b"abc", b"de"]) == {"text": [b"cba?!", b"ed?!"], "length": [5, 4]}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('context.arguments["suffix"]', "context.nothing", "Reverser.load: AttributeError"),
        ("import json", "import absent_module", "importing code.py: ModuleNotFoundError"),
        ("def predict", "def predicts", "one class of kind handler with predict, it has none"),
        ("def predict", "async def predict", "predict is async: it must be a function or a generator"),
    ],
)
def test_a_broken_handler_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        loaded(handler_folder(tmp_path, HANDLER.replace(old, new)), tmp_path)


def test_a_handler_gives_scalars_as_scalars(tmp_path: Path) -> None:
    folder = handler_folder(tmp_path, "class Echo:\n    def predict(self, inputs):\n        return inputs\n")
    scalar = [{"name": "x", "datatype": "FP32", "shape": []}]
    (folder / "config.yaml").write_text(yaml.safe_dump({"handler": "code.py", "inputs": scalar, "outputs": scalar}))
    [given] = loaded(folder, tmp_path).program.infer([Tensor("x", Datatype.FP32, np.array(1.5, dtype=np.float32))])
    assert given.shape == () and given.array == 1.5


def test_a_handler_that_takes_no_made_up_input_is_served_unbatched(tmp_path: Path) -> None:
    code = HANDLER.replace("return [text[::-1]", "assert all(texts)\n        return [text[::-1]")
    model = loaded(handler_folder(tmp_path, code), tmp_path)
    assert model.free is None and not model.program.signature.batched
    assert answer(model, text=[b"abc"])["text"] == [b"cba?!"]


def test_a_served_handler_answers_over_http(tmp_path: Path) -> None:
    folder = handler_folder(tmp_path)
    with serving(tmp_path, folder.as_uri(), "--format", "python") as server:
        server.await_ready()
        body = {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["abc", "de"]}]}
        status, answered, _ = fetch(server.address, "POST", "/v2/models/m/infer", json.dumps(body).encode())
        assert status == 200
        assert [one["data"] for one in json.loads(answered)["outputs"]] == [["cba?!", "ed?!"], [5, 4]]


def test_torchserve_archives(tmp_path: Path) -> None:
    weighted = Weighted().eval()
    script(weighted, tmp_path / "w.pt")
    manifest = {"model": {"modelName": "w", "serializedFile": "w.pt", "handler": "image_classifier"}}
    mar = tmp_path / "w.mar"
    with zipfile.ZipFile(mar, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        archive.write(tmp_path / "w.pt", "w.pt")
    x = [[1.0, 2, 3, 4]]
    assert np.allclose(answer(loaded(mar, tmp_path), x=x)["output_0"], weighted(torch.tensor(x)).tolist())
    for name in ("../w.pt", "/w.pt", "absent.pt"):
        evil = tmp_path / f"{name.replace('/', '_')}.mar"
        with zipfile.ZipFile(evil, "w") as archive:
            archive.writestr("MAR-INF/MANIFEST.json", json.dumps({"model": {"serializedFile": name}}))
        with pytest.raises(Refusal):
            loaded(evil, tmp_path)


def test_mlflow_folders(tmp_path: Path) -> None:
    folder = tmp_path / "mlflow"
    folder.mkdir()
    linear_onnx(folder / "model.onnx")
    tensor = {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}
    document = {
        "flavors": {"onnx": {"data": "model.onnx"}, "python_function": {}},
        "signature": {"inputs": json.dumps([{**tensor, "name": "x"}])},
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(document))
    assert answer(loaded(folder, tmp_path), x=[[1, 0, 0, 0]]) == {"y": [[0, 1]]}
    (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": {"sklearn": {}}}))
    with pytest.raises(Refusal, match="sklearn: only onnx and pytorch"):
        loaded(folder, tmp_path)
    (folder / "data").mkdir()
    (folder / "data" / "model.pth").write_bytes(b"\x80\x02}q\x00.")
    (folder / "MLmodel").write_text(yaml.safe_dump({"flavors": {"pytorch": {"model_data": "data"}}}))
    with pytest.raises(Refusal, match="log the model as TorchScript"):
        loaded(folder, tmp_path)
    (folder / "MLmodel").write_text("- just\n- a list\n")
    with pytest.raises(Refusal, match="BadModelConfig"):
        loaded(folder, tmp_path)


TRITON = """
name: "linear" # a comment
platform: "onnxruntime_onnx"
max_batch_size: 16
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output { name: "y", data_type: TYPE_FP32, dims: 2 }
instance_group [ { count: 1, kind: KIND_CPU } ]
"""


def test_triton_repositories(tmp_path: Path) -> None:
    folder = tmp_path / "triton"
    for version in ("2", "10"):
        (folder / version).mkdir(parents=True)
    linear_onnx(folder / "10" / "model.onnx")
    (folder / "config.pbtxt").write_text(TRITON)
    model = loaded(folder, tmp_path)
    assert model.max_rows == 16 and model.program.signature.batched
    assert answer(model, x=[[1, 0, 0, 0]]) == {"y": [[0, 1]]}
    for text in ('name: "a', "name: }", "input {", 'platform: "tensorflow_savedmodel"', "{" * 100):
        (folder / "config.pbtxt").write_text(text)
        with pytest.raises(Refusal):
            loaded(folder, tmp_path)


def test_protobufs_text_format() -> None:
    parsed = parse_text_format("a: 1 a: 2 b { c: 'x' d: [1, 2] } e: [{f: true}, {f: false}]")
    assert parsed == {"a": ["1", "2"], "b": [{"c": ["x"], "d": ["1", "2"]}], "e": [{"f": ["true"]}, {"f": ["false"]}]}


def zipped(write: Callable[[zipfile.ZipFile], None]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    return buffer


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    return member


def zip_link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("l")
    entry.external_attr = 0o120777 << 16
    archive.writestr(entry, "/etc/passwd")


def twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("a", "1")
    archive.writestr("A", "2")


def many(archive: zipfile.ZipFile) -> None:
    for number in range(30):
        archive.writestr(str(number), "x")


@pytest.mark.parametrize(
    ("archive", "kind"),
    [
        (zipped(lambda a: a.writestr("../a", "x")), ModelKind.ZIP),
        (zipped(lambda a: a.writestr("/a", "x")), ModelKind.ZIP),
        (zipped(lambda a: a.writestr("a/../../b", "x")), ModelKind.ZIP),
        (zipped(lambda a: a.writestr("bomb", bytes(3_000_000))), ModelKind.ZIP),
        (zipped(many), ModelKind.ZIP),
        (zipped(zip_link), ModelKind.ZIP),
        (zipped(twice), ModelKind.ZIP),
        (tarred((tarfile.TarInfo("../a"), b"x")), ModelKind.GZIP),
        (tarred((tarfile.TarInfo("/a"), b"x")), ModelKind.GZIP),
        (tarred((link("l", tarfile.SYMTYPE), b"")), ModelKind.GZIP),
        (tarred((link("l", tarfile.LNKTYPE), b"")), ModelKind.GZIP),
        (tarred((link("l", tarfile.FIFOTYPE), b"")), ModelKind.GZIP),
        (tarred((link("l", tarfile.CHRTYPE), b"")), ModelKind.GZIP),
        (tarred((tarfile.TarInfo("bomb"), bytes(3_000_000))), ModelKind.GZIP),
    ],
)
def test_unsafe_archives_leave_nothing_behind(tmp_path: Path, archive: io.BytesIO, kind: ModelKind) -> None:
    target = tmp_path / "deep" / "target"
    limits = ArchiveLimits(entries=20, total_bytes=10_000_000, ratio=50, free_bytes=1_000_000)
    with pytest.raises(Refusal, match="ArtefactUnsafe"):
        unpack(archive, kind, target, limits)
    assert not target.exists() and [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_packed_folder_is_served_as_the_folder(tmp_path: Path) -> None:
    folder = class_folder(tmp_path, {"class": "network.py:Network", "inputs": ROWS})
    packed = tmp_path / "v1.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder, "v1")
    assert answer(loaded(packed, tmp_path), x=[[1, 0, 0, 0]]) == {"logits": [[1, 5]]}
    whole = packed.read_bytes()
    for damaged in (whole[:40], whole[:-300], whole[:100] + bytes(60) + whole[160:]):
        packed.write_bytes(damaged)
        with pytest.raises(Refusal, match="cannot be unpacked"):
            loaded(packed, tmp_path)
    assert len(list((tmp_path / "store" / "unpacked").iterdir())) == 1


def test_a_damaged_zip_leaves_nothing_behind(tmp_path: Path) -> None:
    buffer = zipped(lambda archive: archive.writestr("a", b"words " * 5000)).getvalue()
    broken = io.BytesIO(buffer[:60] + bytes(20) + buffer[80:])
    with pytest.raises(Refusal, match="cannot be unpacked"):
        unpack(broken, ModelKind.ZIP, tmp_path / "target")
    assert not (tmp_path / "target").exists()
