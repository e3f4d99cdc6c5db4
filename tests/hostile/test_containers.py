"""Code hidden in whatever can hold a pickle: it is refused, and never run."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from slipway_runtime.artefact.pickles import foreign_globals
from slipway_runtime.refusal import Refusal

from tests.runtime.test_models_formats import Gadget, class_folder, loaded


def plain(path: Path) -> Path:
    path.write_bytes(pickle.dumps(Gadget()))
    return path


def old_checkpoint(path: Path) -> Path:
    torch.save({"w": Gadget()}, path, _use_new_zipfile_serialization=False)
    return path


def checkpoint(path: Path) -> Path:
    torch.save(Gadget(), path)
    return path


def objects_of_numpy(path: Path) -> Path:
    with path.open("wb") as file:
        np.save(file, np.array([Gadget()], dtype=object), allow_pickle=True)
    return path


def zip_of_numpy(path: Path) -> Path:
    with path.open("wb") as file:
        np.savez(file, a=np.array([Gadget()], dtype=object))
    return path


def metadata_of_safetensors(path: Path) -> Path:
    save_file({"w": torch.ones(2)}, path, metadata={"pickle": pickle.dumps(Gadget(), 0).decode("latin-1")})
    return path


def lying_safetensors(path: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + pickle.dumps(Gadget()))
    return path


def joblib_like(path: Path) -> Path:
    path.write_bytes(b"\x80\x03" + pickle.dumps(Gadget(), 3)[2:])
    return path


def mar(path: Path) -> Path:
    manifest = {"model": {"modelName": "m", "serializedFile": "model.pt", "handler": "base_handler"}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        archive.writestr("model.pt", pickle.dumps(Gadget()))
    return path


def mlflow(path: Path) -> Path:
    (path / "data").mkdir(parents=True)
    (path / "data" / "model.pth").write_bytes(pickle.dumps(Gadget()))
    flavors = {"python_function": {"loader_module": "mlflow.pytorch", "data": "data"}}
    flavors["pytorch"] = {"model_data": "data", "pytorch_version": "2.13.0"}
    (path / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors}))
    return path


def mlflow_of_sklearn(path: Path) -> Path:
    path.mkdir()
    (path / "model.pkl").write_bytes(pickle.dumps(Gadget()))
    flavors = {"sklearn": {"pickled_model": "model.pkl", "serialization_format": "cloudpickle"}}
    (path / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors}))
    return path


def packed(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("model/model.pkl")
        data = pickle.dumps(Gadget())
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def weights_of_a_class(path: Path) -> Path:
    path.mkdir()
    folder = class_folder(path, {"class": "network.py:Network", "model": "model.pt"})
    (folder / "model.pt").write_bytes(pickle.dumps({"linear.weight": Gadget()}))
    return folder


def compressed(by: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    """As joblib writes with compression: a pickle and nothing else behind a magic number."""

    def write(path: Path) -> Path:
        path.write_bytes(by(pickle.dumps(Gadget())))
        return path

    write.__name__ = by.__module__
    return write


def archive_of_tar_days(path: Path) -> Path:
    """As torch.save wrote in its first years: a tar of pickles."""
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            member = tarfile.TarInfo(name)
            data = pickle.dumps(Gadget(), 2)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def torch_file(*names: str) -> Callable[[Path], Path]:
    """A zip as torch writes it, with the pickles of those names."""

    def write(path: Path) -> Path:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name in names:
                content = pickle.dumps(Gadget()) if name.endswith((".pkl", ".pt")) else b"pt2"
                archive.writestr(f"model/{name}", content)
            archive.writestr("model/version", "3")
        return path

    write.__name__ = "_".join(names)
    return write


def nested(path: Path) -> Path:
    """A zip in a tar in a zip, down to the pickle."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("model.pt", pickle.dumps(Gadget()))
    middle = io.BytesIO()
    with tarfile.open(fileobj=middle, mode="w:gz") as packed_in_it:
        member = tarfile.TarInfo("model.pt")
        member.size = len(inner.getvalue())
        packed_in_it.addfile(member, io.BytesIO(inner.getvalue()))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/model.pt", middle.getvalue())
    return path


def onnx_by_name(path: Path) -> Path:
    """A pickle in the place of an ONNX program, in the layout of Triton."""
    (path / "1").mkdir(parents=True)
    (path / "1" / "model.onnx").write_bytes(pickle.dumps(Gadget()))
    return path


CONTAINERS = (
    compressed(zlib.compress), compressed(gzip.compress), compressed(bz2.compress), compressed(lzma.compress),
    archive_of_tar_days, torch_file("data.pkl"), torch_file("constants.pkl", "data.pkl", "code/x.py"), nested,
    torch_file("archive_format", "models/model.json", "data/weights/model.pt"), onnx_by_name,
    plain, old_checkpoint, checkpoint, objects_of_numpy, zip_of_numpy, metadata_of_safetensors, lying_safetensors,
    joblib_like, mar, mlflow, mlflow_of_sklearn, packed, weights_of_a_class,
)  # fmt: skip


@pytest.mark.parametrize("name", ["model.pt", "model.onnx", "model"])
@pytest.mark.parametrize("container", CONTAINERS)
def test_code_in_any_container_is_refused_and_never_run(
    tmp_path: Path, container: Callable[[Path], Path], name: str
) -> None:
    path = container(tmp_path / name)
    with pytest.raises(Refusal) as caught:
        loaded(path, tmp_path)
    assert not Gadget.called
    assert len(str(caught.value)) < 1000


OS_SYSTEM = pickle.SHORT_BINUNICODE + b"\x02os" + pickle.MEMOIZE
OS_SYSTEM += pickle.SHORT_BINUNICODE + b"\x06system" + pickle.MEMOIZE + pickle.POP + pickle.POP
DECOY = pickle.SHORT_BINUNICODE + b"\x0bcollections" + pickle.SHORT_BINUNICODE + b"\x0bOrderedDict"
CALL = pickle.SHORT_BINUNICODE + b"\x04true" + pickle.TUPLE1 + pickle.REDUCE + pickle.STOP


@pytest.mark.parametrize(
    "operands",
    [
        DECOY + pickle.POP + pickle.POP + pickle.BINGET + b"\x00" + pickle.BINGET + b"\x01",
        pickle.BINGET + b"\x00" + pickle.BINGET + b"\x01" + DECOY + pickle.POP + pickle.POP,
        DECOY + pickle.POP + pickle.POP + pickle.BINGET + b"\x00" + pickle.BINGET + b"\x01" + pickle.NONE + pickle.POP,
    ],
)
def test_a_name_that_comes_through_the_memo_is_not_taken_for_the_text_before_it(operands: bytes) -> None:
    data = pickle.PROTO + b"\x04" + OS_SYSTEM + operands + pickle.STACK_GLOBAL + CALL
    assert foreign_globals(data) != []


def test_names_through_the_memo_are_known_where_they_are_certain() -> None:
    names = DECOY.replace(b"collections", b"collections" + pickle.MEMOIZE) + pickle.MEMOIZE + pickle.STACK_GLOBAL
    again = pickle.BINGET + b"\x00" + pickle.BINGET + b"\x01" + pickle.STACK_GLOBAL + pickle.STOP
    assert foreign_globals(pickle.PROTO + b"\x04" + names + again) == []
