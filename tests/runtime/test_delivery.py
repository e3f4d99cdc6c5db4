"""``slipway-runtime fetch``: a verified copy of a model for another server, laid out as that server wants it."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from slipway_runtime import cli
from slipway_runtime.artefact.digest import digest_of
from slipway_runtime.fetch.delivery import Delivery, Layout, deliver
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Access

from tests.runtime.remote import remote_server

CONFIG = 'backend: "python"\nmax_batch_size: 8\n'


def written(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_py", ".py").replace("_pbtxt", ".pbtxt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def model_folder(root: Path, config: str = CONFIG) -> Path:
    return written(root, config_pbtxt=config, **{"1__model_py": "class TritonPythonModel: ..."})


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models"


def triton(source: Path, target: Path, sha256: str = "", name: str = "scans") -> str:
    return deliver(Delivery(source.as_uri(), target, name, sha256, Layout.TRITON))


def test_a_models_folder_becomes_a_repository_under_the_name_clients_ask_for(tmp_path: Path, target: Path) -> None:
    source = model_folder(tmp_path / "anything")
    assert triton(source, target, digest_of(source)) == digest_of(source)
    assert names(target) == {"scans/config.pbtxt", "scans/1/model.py"}
    assert digest_of(target / "scans") == digest_of(source)


def test_a_repository_stays_as_it_is_and_must_hold_that_name(tmp_path: Path, target: Path) -> None:
    source = tmp_path / "repository"
    for name in ("scans", "tokens"):
        model_folder(source / name)
    triton(source, target)
    assert names(target) == {
        f"{name}/{file}" for name in ("scans", "tokens") for file in ("config.pbtxt", "1/model.py")
    }
    with pytest.raises(Refusal, match="has no model other, which clients ask for; its models: scans, tokens"):
        triton(source, target, name="other")
    assert names(target) == set()


def test_of_single_files_triton_takes_onnx(tmp_path: Path, target: Path) -> None:
    identity = onnx.helper.make_node("Identity", ["x"], ["y"])
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([identity], "g", tensors[:1], tensors[1:])
    source = tmp_path / "anything"
    source.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    assert triton(source, target) == digest_of(source)
    assert names(target) == {"scans/1/model.onnx"}
    with pytest.raises(Refusal, match="Triton wants a model's folder"):
        triton(written(tmp_path / "other", **{"weights": "w"}) / "weights", target)


def test_a_configuration_with_another_name_is_refused_before_triton_does(tmp_path: Path, target: Path) -> None:
    with pytest.raises(Refusal, match="names the model bert, clients will ask for scans"):
        triton(model_folder(tmp_path / "bert", f'name: "bert"\n{CONFIG}'), target)
    triton(model_folder(tmp_path / "own", f'name: "scans"\n{CONFIG}'), target)


def test_nothing_is_left_of_a_model_with_another_digest(tmp_path: Path, target: Path) -> None:
    source = model_folder(tmp_path / "model")
    triton(source, target)
    with pytest.raises(Refusal, match="DigestMismatch"):
        triton(source, target, "ab" * 32)
    assert list(target.iterdir()) == []


def test_a_signature_is_verified(tmp_path: Path, target: Path) -> None:
    source = model_folder(tmp_path / "model")
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pem").write_bytes(pem)
    signature = base64.b64encode(key.sign(digest_of(source).encode())).decode()
    access = Access(public_key=tmp_path / "key.pem", signature=signature)
    deliver(Delivery(source.as_uri(), target, "scans", layout=Layout.TRITON, access=access))
    (source / "1" / "model.py").write_text("import os")
    with pytest.raises(Refusal, match="SignatureInvalid"):
        deliver(Delivery(source.as_uri(), target, "scans", layout=Layout.TRITON, access=access))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: Path) -> None:
    source = model_folder(tmp_path / "model")
    (tmp_path / "secret").write_text("secret")
    (source / "1" / "weights").symlink_to(tmp_path / "secret")
    with pytest.raises(Refusal, match="ArtefactUnsafe"):
        triton(source, target)


def test_python_code_from_elsewhere_has_to_be_told_beforehand(tmp_path: Path, target: Path) -> None:
    source = model_folder(tmp_path / "model")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.add(source, arcname="model")
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    secret = written(tmp_path / "secret", HF_ENDPOINT="")
    access = Access(storage_secret=secret)
    with remote_server() as server:
        (secret / "HF_ENDPOINT").write_text(server.url)
        server.json("/api/models/o/n/tree/main", [{"type": "file", "path": "m.tar.gz", "size": len(packed.getvalue())}])
        server.pages["/o/n/resolve/main/m.tar.gz"] = packed.getvalue()
        remote = Delivery("hf://o/n/m.tar.gz", target, "scans", layout=Layout.TRITON, access=access)
        with pytest.raises(Refusal, match="ArtefactUnverified"):
            deliver(remote)
        assert names(target) == set()
        assert deliver(replace(remote, sha256=digest)) == digest
    assert names(target) == {"scans/config.pbtxt", "scans/1/model.py"}


def test_the_command_lays_out_a_folder_or_a_file(tmp_path: Path, target: Path, capsys: pytest.CaptureFixture) -> None:
    source = written(tmp_path / "llama", **{"config": "{}"})
    assert cli.main(["fetch", source.as_uri(), "--to", str(target), "--sha256", digest_of(source)]) == ExitCode.OK
    assert capsys.readouterr().out.strip() == digest_of(source)
    assert names(target) == {"model/config"}
    assert cli.main(["fetch", (source / "config").as_uri(), "--to", str(target), "--name", "x"]) == ExitCode.OK
    assert names(target) == {"x/config"}


def test_the_command_leaves_a_message_for_kubernetes(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_TERMINATION_LOG", str(tmp_path / "message"))
    code = cli.main(["fetch", (tmp_path / "nothing").as_uri(), "--to", str(target)])
    assert code == ExitCode.ARTEFACT_NOT_FOUND
    assert (tmp_path / "message").read_text().startswith("ArtefactNotFound: there is no model at ")
    source = written(tmp_path / "llama", config="{}")
    assert cli.main(["fetch", source.as_uri(), "--to", str(target)]) == ExitCode.OK
    assert (tmp_path / "message").read_text() == f"sha256:{digest_of(source)}"
