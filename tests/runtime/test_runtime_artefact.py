"""Digests, kinds of files, and what a .pt2 archive may hold."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.artefact.expressions import is_harmless_expression
from slipway_runtime.artefact.format import ARCHIVES, PROGRAMS, ModelKind, sniff
from slipway_runtime.artefact.location import local_path, opened
from slipway_runtime.artefact.pickles import foreign_globals
from slipway_runtime.artefact.pt2 import scan
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.tensors.datatypes import Datatype
from slipway_runtime.tensors.tensor import TensorSpec

from tests.runtime.programs import TwoTensors, export


def test_digest_of_a_file_is_plain_sha256(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"abc")
    assert digest_of(file) == hashlib.sha256(b"abc").hexdigest()


def test_digest_of_a_folder_is_canonical(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.bin", "a.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in ("a.txt", "a/z.bin", "b.txt")]
    assert digest_of(tmp_path) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_links_inside_the_folder_count_and_those_out_of_it_are_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "model", tmp_path / "outside"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    (folder / "b").symlink_to("a")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert digest_of(folder) == digest_of(copy)
    outside.write_bytes(b"secret")
    (folder / "c").symlink_to(outside)
    with pytest.raises(Refusal, match="ArtefactUnsafe"):
        digest_of(folder)
    (folder / "c").unlink()
    (folder / "d").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(Refusal, match="ArtefactUnsafe"):
        digest_of(folder)
    (folder / "d").unlink()
    os.mkfifo(folder / "e")
    with pytest.raises(Refusal, match="neither a file nor a folder"):
        digest_of(folder)


def test_uris() -> None:
    assert local_path("file:///models/a%20b") == Path("/models/a b")
    assert local_path("/models/a") == Path("/models/a")
    for uri in ("s3://bucket/model", "https://a/b", "hf://a", "oci://a/b", "models:/a/1"):
        assert local_path(uri) is None
    for uri in ("model.pt", "file://host/model"):
        with pytest.raises(Refusal) as caught:
            local_path(uri)
        assert caught.value.code is ExitCode.ARTEFACT_REFUSED


def test_the_digest_is_checked_before_the_kind(tmp_path: Path, model_files: dict[str, Path]) -> None:
    junk = tmp_path / "model.pt"
    junk.write_bytes(b"junk")
    with pytest.raises(Refusal) as caught, opened(junk.as_uri(), "0" * 64):
        pass
    assert caught.value.reason == "DigestMismatch"
    assert "0" * 64 in caught.value.text and digest_of(junk) in caught.value.text
    good = model_files["weighted.pt"]
    with opened(good.as_uri(), f"sha256:{digest_of(good)}") as artefact:
        assert artefact.kind is ModelKind.TORCHSCRIPT
    with pytest.raises(Refusal) as caught, opened(good.as_uri(), "abc"):
        pass
    assert caught.value.code is ExitCode.BAD_ARGUMENTS
    with pytest.raises(Refusal) as caught, opened("file:///nowhere/at/all", ""):
        pass
    assert caught.value.code is ExitCode.ARTEFACT_NOT_FOUND


def test_what_was_hashed_is_what_is_loaded(tmp_path: Path, model_files: dict[str, Path]) -> None:
    place = tmp_path / "model.pt"
    shutil.copy(model_files["weighted.pt"], place)
    with opened(place.as_uri(), digest_of(place)) as artefact:
        evil = tmp_path / "evil"
        evil.write_bytes(b"evil")
        evil.rename(place)
        assert artefact.path.read_bytes() == model_files["weighted.pt"].read_bytes()


def test_folders(tmp_path: Path, model_files: dict[str, Path]) -> None:
    folder = tmp_path / "v1"
    folder.mkdir()
    (folder / "README").write_text("words")
    with pytest.raises(Refusal, match="README"), opened(folder.as_uri(), ""):
        pass
    shutil.copy(model_files["weighted.pt"], folder / "first")
    with opened(folder.as_uri(), digest_of(folder)) as artefact:
        assert artefact.path.name == "first"
    shutil.copy(model_files["two.pt2"], folder / "second")
    with pytest.raises(Refusal, match="several models"), opened(folder.as_uri(), ""):
        pass
    shutil.copy(model_files["two.pt2"], folder / "model.pt2")
    with opened(folder.as_uri(), "") as artefact:
        assert artefact.kind is ModelKind.TORCH_EXPORT


def zip_bytes(names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", ModelKind.EMPTY),
        (pickle.dumps({"a": 1}), ModelKind.PICKLE),
        (b"version https://git-lfs.github.com/spec/v1\n", ModelKind.LFS_POINTER),
        (b"<!DOCTYPE html><html>", ModelKind.HTML),
        (b"\x89HDF\r\n\x1a\n", ModelKind.HDF5),
        (b"\x1f\x8b\x08\x00", ModelKind.GZIP),
        (b"\x08\x08\x12\x07pytorch", ModelKind.ONNX),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00" + b'{"a":{}}', ModelKind.SAFETENSORS),
        (b"just words", ModelKind.TEXT),
        (b"\xfe\xed\xfa\xce\x00", ModelKind.UNKNOWN),
        (b"PK\x03\x04 and no more", ModelKind.UNKNOWN),
        (zip_bytes(["a/b"]), ModelKind.ZIP),
        (zip_bytes(["m/data.pkl", "m/data/0"]), ModelKind.CHECKPOINT),
        (zip_bytes(["m/data.pkl", "m/code/a.py"]), ModelKind.TORCHSCRIPT),
    ],
)
def test_files_are_known_by_content(tmp_path: Path, content: bytes, kind: ModelKind) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(content)
    assert sniff(file) is kind
    if kind not in PROGRAMS | ARCHIVES:
        with pytest.raises(Refusal) as caught, opened(file.as_uri(), ""):
            pass
        assert kind.value in caught.value.text and caught.value.code is ExitCode.ARTEFACT_REFUSED


def test_real_files_are_known(model_files: dict[str, Path]) -> None:
    kinds = {name: sniff(path) for name, path in model_files.items()}
    assert kinds["weighted.pt"] is kinds["traced.pt"] is ModelKind.TORCHSCRIPT
    assert kinds["two.pt2"] is ModelKind.TORCH_EXPORT
    assert kinds["checkpoint.pt"] is ModelKind.CHECKPOINT


def test_the_signature_is_read_without_running_anything(model_files: dict[str, Path]) -> None:
    found = scan(model_files["two.pt2"])
    assert found.inputs == (TensorSpec("x", Datatype.FP32, (-1, 4)), TensorSpec("y", Datatype.INT64, (-1, 2)))
    assert found.outputs == (TensorSpec("logits", Datatype.FP32, (-1, 2)), TensorSpec("next", Datatype.INT64, (-1, 2)))
    assert (found.positional, found.max_rows) == (2, 64)


Change = Callable[[str, bytes], bytes]


def rewritten(
    source: Path, target: Path, change: Change, extra: dict[str, bytes] | None = None, **options: Any
) -> Path:
    """A copy of an archive with entries changed or added."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", **options) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(entry.filename, old.read(entry)))
        for name, data in (extra or {}).items():
            new.writestr(name, data)
    return target


class Gadget:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


def unchanged(_: str, data: bytes) -> bytes:
    return data


def with_guard(text: str) -> Change:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        document = json.loads(data)
        document["guards_code"] = [text]
        return json.dumps(document).encode()

    return change


def with_pickled_weights(name: str, data: bytes) -> bytes:
    return data.replace(b'"use_pickle": false', b'"use_pickle": true') if name.endswith("config.json") else data


def with_evil_shape(name: str, data: bytes) -> bytes:
    old, new = b"Symbol('s17'", b"__import__('os').system('true') or Symbol('s17'"
    return data.replace(old, new) if name.endswith("model.json") else data


def with_gadget_sample(name: str, data: bytes) -> bytes:
    return pickle.dumps(Gadget()) if name.endswith("sample_inputs/model.pt") else data


DANGEROUS: dict[str, tuple[Change, dict[str, bytes] | None]] = {
    "guard": (with_guard("__import__('os').system('true')"), None),
    "attribute guard": (with_guard("L['x'].__class__.__base__.__subclasses__()"), None),
    "lambda guard": (with_guard("(lambda: 1)() == 1"), None),
    "pickled weights": (with_pickled_weights, None),
    "sample inputs": (with_gadget_sample, None),
    "native code": (unchanged, {"two/data/aotinductor/model/lib.so": b"\x7fELF"}),
    "way out": (unchanged, {"two/../../evil": b""}),
    "absolute": (unchanged, {"/evil": b""}),
}


@pytest.mark.parametrize("name", DANGEROUS)
def test_what_would_run_code_on_loading_is_refused(tmp_path: Path, model_files: dict[str, Path], name: str) -> None:
    change, extra = DANGEROUS[name]
    with pytest.raises(Refusal, match="UnsafeModel"):
        scan(rewritten(model_files["two.pt2"], tmp_path / "evil.pt2", change, extra))


def test_an_evil_shape_expression_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "good.pt2"
    export(TwoTensors().eval(), source)

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        document = json.loads(data)
        text = json.dumps(document).replace('"expr_str": "', '"expr_str": "__import__(\'os\') and ')
        assert text != json.dumps(document)
        return text.encode()

    with pytest.raises(Refusal, match="UnsafeModel"):
        scan(rewritten(source, tmp_path / "evil.pt2", change))


def test_compressed_and_damaged_archives_are_refused(tmp_path: Path, model_files: dict[str, Path]) -> None:
    packed = rewritten(model_files["two.pt2"], tmp_path / "a.pt2", unchanged, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(Refusal, match="compressed"):
        scan(packed)
    assert scan(rewritten(model_files["two.pt2"], tmp_path / "b.pt2", unchanged)).positional == 2

    def cut(name: str, data: bytes) -> bytes:
        return data[:100] if name.endswith("model.json") else data

    with pytest.raises(Refusal, match="damaged"):
        scan(rewritten(model_files["two.pt2"], tmp_path / "c.pt2", cut))


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("L['x'].size()[0] == L['y'].size()[0]", True),
        ("L['x'].size()[0] <= 64 and 2 <= L['x'].size()[0]", True),
        ("Symbol('s17', positive=True, integer=True)", True),
        ("Add(Mul(Integer(2), Symbol('s0')), Integer(1))", True),
        ("2*s0 + 1", True),
        ("Mod(s0, 8) != 1", True),
        ("FloorDiv(s0 - 1, 2) + u3", True),
        ("print('x')", False),
        ("L['x'].__class__", False),
        ("[x for x in ()]", False),
        ("Symbol('__import__(\"os\")')", False),
        ("eval", False),
        ("(a := 1)", False),
        ("f'{1}'", False),
        ("1 if 2 else 3", False),
        ("s0; s1", False),
        ("(" * 1000, False),
        (17, False),
    ],
)
def test_expressions(text: object, harmless: bool) -> None:
    assert is_harmless_expression(text) is harmless


@pytest.mark.parametrize("dimension", [torch.export.Dim.DYNAMIC, torch.export.Dim.AUTO, torch.export.Dim("batch")])
@pytest.mark.parametrize("sample", [torch.zeros(2, 4), torch.zeros(4, 2).t(), torch.nn.Parameter(torch.zeros(2, 4))])
def test_a_program_as_torch_export_saves_it_is_taken(dimension: Any, sample: torch.Tensor, tmp_path: Path) -> None:
    # Exporting with dynamic shapes leaves attributes on the sample inputs, which are saved with the program.
    program = torch.export.export(torch.nn.ReLU(), (sample,), dynamic_shapes=({0: dimension},))
    torch.export.save(program, tmp_path / "model.pt2")
    [tensor] = scan(tmp_path / "model.pt2").inputs
    assert tensor.shape == (-1, 4)


def test_pickles_are_read_and_never_run() -> None:
    buffer = io.BytesIO()
    torch.save((torch.ones(2, dtype=torch.bfloat16), {"a": torch.zeros(1, dtype=torch.int64)}), buffer)
    assert foreign_globals(buffer.getvalue()) == []
    for protocol in range(6):
        assert foreign_globals(pickle.dumps(Gadget(), protocol))
    assert foreign_globals(b"\x80\x04garbage")
    assert foreign_globals(b"PK\x03\x04garbage")
    assert foreign_globals(b"") == []
