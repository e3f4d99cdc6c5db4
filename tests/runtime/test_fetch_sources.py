"""URIs of every scheme against servers that speak their protocols; signatures; what is refused unverified."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
import torch
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from slipway_runtime.artefact.arrival import arrived
from slipway_runtime.artefact.digest import digest_of, folder_lines
from slipway_runtime.artefact.location import opened
from slipway_runtime.artefact.trust import Trust
from slipway_runtime.fetch.credentials import Credentials
from slipway_runtime.fetch.store import Store
from slipway_runtime.fetch.transfer import FetchLimits
from slipway_runtime.models.loading import load
from slipway_runtime.refusal import ExitCode, Refusal
from slipway_runtime.settings import Access, Device, ModelSettings

from tests.runtime.harness import serving
from tests.runtime.remote import Answer, Asked, RemoteServer, remote_server
from tests.runtime.test_models_formats import ROWS, class_folder, handler_folder


@pytest.fixture
def remote() -> Iterator[RemoteServer]:
    with remote_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "HF_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)


def store_of(tmp_path: Path, limits: FetchLimits | None = None, /, **secret: str) -> Store:
    folder = tmp_path / "secret"
    folder.mkdir(exist_ok=True)
    for name, value in secret.items():
        (folder / name.replace("__", ".")).write_text(value)
    return Store(tmp_path / "store", Credentials(folder), limits or FetchLimits(tries=2), pause=_PAUSES.append)


def content(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


_PAUSES: list[float] = []
OBJECTS = {"v1/model.pt": b"model", "v1/deep/words.txt": b"words", "v10/other": b"no"}


def bucket(remote: RemoteServer, objects: dict[str, bytes]) -> None:
    """An S3-like bucket ``models`` that lists two keys a page and wants signatures of the key AKID."""

    def listing(asked: Asked) -> Answer:
        if "AKID" not in asked.headers.get("authorization", ""):
            return Answer(b"<Error><Code>AccessDenied</Code></Error>", 403, {"Content-Type": "application/xml"})
        names = sorted(name for name in objects if name.startswith(asked.query.get("prefix", "")))
        start = int(asked.query.get("continuation-token") or 0)
        page = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(objects[name])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;a&quot;</ETag></Contents>"
            for name in names[start : start + 2]
        )
        more = start + 2 < len(names)
        following = f"<NextContinuationToken>{start + 2}</NextContinuationToken>" if more else ""
        text = f"<ListBucketResult><Name>models</Name><IsTruncated>{str(more).lower()}</IsTruncated>{page}{following}"
        return Answer(f"{text}</ListBucketResult>".encode(), headers={"Content-Type": "application/xml"})

    def object_of(data: bytes) -> Any:
        return lambda asked: Answer(data) if "AKID" in asked.query.get("X-Amz-Credential", "") else Answer(status=403)

    remote.pages["/models"] = remote.pages["/models/"] = listing
    for name, data in objects.items():
        remote.pages[f"/models/{name}"] = object_of(data)


def s3_store(tmp_path: Path, remote: RemoteServer, **secret: str) -> Store:
    keys = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-1"}
    return store_of(tmp_path, **{"AWS_ENDPOINT_URL": remote.url, **keys, **secret})


def test_s3(tmp_path: Path, remote: RemoteServer) -> None:
    bucket(remote, OBJECTS)
    store = s3_store(tmp_path, remote)
    folder = store.fetch("s3://models/v1", "")
    assert content(folder) == {"model.pt": b"model", "deep/words.txt": b"words"}
    assert content(store.fetch("s3://models/v1/", "")) == content(folder)
    assert store.fetch("s3://models/v1/model.pt", "").read_bytes() == b"model"
    with pytest.raises(Refusal) as caught:
        store.fetch("s3://models/v2", "")
    assert caught.value.code is ExitCode.ARTEFACT_NOT_FOUND
    with pytest.raises(Refusal, match="FetchDenied: S3: AccessDenied"):
        s3_store(tmp_path, remote, AWS_ACCESS_KEY_ID="OTHER").fetch("s3://models/v1", "")


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, remote: RemoteServer) -> None:
    bucket(remote, {"v1/../../evil": b"x"})
    with pytest.raises(Refusal, match="ArtefactUnsafe"):
        s3_store(tmp_path, remote).fetch("s3://models/v1", "")


def test_what_is_too_large_is_not_begun(tmp_path: Path, remote: RemoteServer) -> None:
    bucket(remote, OBJECTS)
    for limits in (FetchLimits(max_bytes=9), FetchLimits(max_files=1)):
        store = s3_store(tmp_path, remote)
        with pytest.raises(Refusal, match="ArtefactTooLarge"):
            Store(store.root, store.credentials, limits).fetch("s3://models/v1", "")
    assert {asked.path.rstrip("/") for asked in remote.asked} == {"/models"}


def test_gs(tmp_path: Path, remote: RemoteServer) -> None:
    def listing(asked: Asked) -> Answer:
        names = [name for name in OBJECTS if name.startswith(asked.query["prefix"])]
        items = [{"name": name, "size": str(len(OBJECTS[name]))} for name in names]
        first = "pageToken" not in asked.query
        page = {"items": items[:1], "nextPageToken": "p"} if first else {"items": items[1:]}
        return Answer(json.dumps(page).encode())

    remote.pages["/storage/v1/b/models/o"] = listing
    for name, data in OBJECTS.items():
        remote.pages[f"/storage/v1/b/models/o/{name}"] = data
    store = store_of(tmp_path, STORAGE_EMULATOR_HOST=remote.host)
    assert content(store.fetch("gs://models/v1", "")) == {"model.pt": b"model", "deep/words.txt": b"words"}
    assert store.fetch("gs://models/v1/model.pt", "").read_bytes() == b"model"


def test_hf(tmp_path: Path, remote: RemoteServer) -> None:
    data = b"weights"
    lfs = {"oid": hashlib.sha256(data).hexdigest()}
    entries = [
        {"type": "directory", "path": "onnx"},
        {"type": "file", "path": ".gitattributes", "size": 1},
        {"type": "file", "path": "onnx/model.onnx", "size": len(data), "lfs": lfs},
    ]
    following = {"Link": f'<{remote.url}/page2>; rel="next"'}
    remote.pages["/api/models/o/n/tree/main"] = Answer(json.dumps(entries).encode(), headers=following)
    remote.json("/page2", [{"type": "file", "path": "config.json", "size": 2}])
    remote.pages |= {"/o/n/resolve/main/onnx/model.onnx": data, "/o/n/resolve/main/config.json": b"{}"}
    store = store_of(tmp_path, HF_ENDPOINT=remote.url, HF_TOKEN="hf")
    assert content(store.fetch("hf://o/n", "")) == {"onnx/model.onnx": data, "config.json": b"{}"}
    assert store.fetch("hf://o/n@main/onnx/model.onnx", "").read_bytes() == data
    assert {asked.headers["authorization"] for asked in remote.asked} == {"Bearer hf"}
    remote.pages["/o/n/resolve/main/onnx/model.onnx"] = b"strange"
    with pytest.raises(Refusal, match="DigestMismatch"):
        store.fetch("hf://o/n/onnx", "")
    with pytest.raises(Refusal, match="write hf://"):
        store.fetch("hf://only-an-owner", "")


def push(remote: RemoteServer, files: dict[str, bytes], titled: bool = True) -> str:
    """An artefact in the registry ``team/m:v1`` that wants a token; gives the manifest's digest."""
    layers = []
    for name, data in files.items():
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        title = {"annotations": {"org.opencontainers.image.title": name}} if titled else {}
        layers.append({"digest": digest, "size": len(data), **title})
        remote.pages[f"/v2/team/m/blobs/{digest}"] = guarded(data)
    manifest = json.dumps({"schemaVersion": 2, "layers": layers}).encode()
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    remote.json("/token", {"token": "t"})
    challenge = f'Bearer realm="{remote.url}/token",service="s",scope="repository:team/m:pull"'
    for reference in ("v1", digest):
        remote.pages[f"/v2/team/m/manifests/{reference}"] = guarded(manifest, challenge)
    return digest


def guarded(data: bytes, challenge: str = "") -> Any:
    refused = Answer(status=401, headers={"WWW-Authenticate": challenge})
    return lambda asked: Answer(data) if asked.headers.get("authorization") == "Bearer t" else refused


def test_oci(tmp_path: Path, remote: RemoteServer) -> None:
    digest = push(remote, {"model.pt": b"model", "config.yaml": b"{}"})
    docker = json.dumps({"auths": {remote.host: {"username": "u", "password": "p"}}})
    store = store_of(tmp_path, OCI_PLAIN_HTTP="true", __dockerconfigjson=docker)
    assert content(store.fetch(f"oci://{remote.host}/team/m:v1", "")) == {"model.pt": b"model", "config.yaml": b"{}"}
    asked = next(one for one in remote.asked if one.path == "/token")
    assert asked.headers["authorization"] == f"Basic {base64.b64encode(b'u:p').decode()}"
    assert asked.query == {"service": "s", "scope": "repository:team/m:pull"}
    assert content(store.fetch(f"oci://{remote.host}/team/m@{digest}", ""))
    remote.pages[f"/v2/team/m/manifests/{digest}"] = b"{}"
    with pytest.raises(Refusal, match="another manifest"):
        store.fetch(f"oci://{remote.host}/team/m@{digest}", "")
    push(remote, {"layer": b"tar"}, titled=False)
    with pytest.raises(Refusal, match="no OCI artefact with titled files"):
        store.fetch(f"oci://{remote.host}/team/m:v1", "")


def test_mlflow(tmp_path: Path, remote: RemoteServer) -> None:
    api = "/api/2.0/mlflow"
    remote.json(f"{api}/registered-models/alias", {"model_version": {"version": "3"}})
    places = {"1": "s3://models/v1", "3": "mlflow-artifacts:/7/run/model", "4": "file:///etc"}
    remote.pages[f"{api}/model-versions/get-download-uri"] = lambda asked: Answer(
        json.dumps({"artifact_uri": places[asked.query["version"]]}).encode()
    )
    files = {
        "7/run/model": [{"path": "MLmodel", "file_size": 1}, {"path": "data", "is_dir": True}],
        "7/run/model/data": [{"path": "model.pt", "file_size": 5}],
    }
    artefacts = "/api/2.0/mlflow-artifacts/artifacts"
    remote.pages[artefacts] = lambda asked: Answer(json.dumps({"files": files[asked.query["path"]]}).encode())
    remote.pages |= {f"{artefacts}/7/run/model/MLmodel": b"m", f"{artefacts}/7/run/model/data/model.pt": b"model"}
    store = s3_store(tmp_path, remote, MLFLOW_TRACKING_URI=remote.url, MLFLOW_TRACKING_TOKEN="t")
    for uri in ("models:/sentiment@live", "models:/sentiment/3"):
        assert content(store.fetch(uri, "")) == {"MLmodel": b"m", "data/model.pt": b"model"}
    assert {asked.headers["authorization"] for asked in remote.asked} == {"Bearer t"}
    bucket(remote, OBJECTS)
    assert "model.pt" in content(store.fetch("models:/sentiment/1", ""))
    with pytest.raises(Refusal, match="SchemeNotSupported"):
        store.fetch("models:/sentiment/4", "")
    with pytest.raises(Refusal, match="MLFLOW_TRACKING_URI"):
        store_of(tmp_path / "store", MLFLOW_TRACKING_URI="").fetch("models:/sentiment/4", "")


def test_a_model_is_served_from_s3(tmp_path: Path, remote: RemoteServer, model_files: dict[str, Path]) -> None:
    data = model_files["weighted.pt"].read_bytes()
    bucket(remote, {"v1/model.pt": data})
    secret = s3_store(tmp_path, remote).credentials.folder
    flags = ("--storage-secret", str(secret), "--model-dir", str(tmp_path / "kept"))
    with serving(tmp_path, "s3://models/v1/model.pt", "--sha256", hashlib.sha256(data).hexdigest(), *flags) as server:
        server.await_ready()


def pem(key: Any, path: Path) -> Path:
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, info))
    return path


def test_signatures(tmp_path: Path, model_files: dict[str, Path]) -> None:
    model = model_files["weighted.pt"]
    digest = digest_of(model)
    curve, edwards = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    # What cosign sign-blob makes: ECDSA with SHA-256 over the file itself.
    cosign = base64.b64encode(curve.sign(model.read_bytes(), ec.ECDSA(hashes.SHA256()))).decode()
    plain = base64.b64encode(edwards.sign(digest.encode())).decode()
    for key, signature, other in ((curve, cosign, plain), (edwards, plain, cosign)):
        public = pem(key, tmp_path / "key.pem")
        with opened(model.as_uri(), "", Trust(public, signature)) as artefact:
            assert artefact.signed and artefact.verified and not artefact.allow_pickle
        for wrong in (other, base64.b64encode(b"x" * 64).decode(), ""):
            with pytest.raises(Refusal, match="SignatureInvalid"), opened(model.as_uri(), "", Trust(public, wrong)):
                pass
        with pytest.raises(Refusal, match="not in base64"), opened(model.as_uri(), "", Trust(public, "???")):
            pass
    for unfit in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        trust = Trust(pem(unfit, tmp_path / "key.pem"), cosign)
        with pytest.raises(Refusal, match="P-256 or Ed25519"), opened(model.as_uri(), "", trust):
            pass
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(Refusal, match="BadPublicKey"), opened(model.as_uri(), "", Trust(tmp_path / "key.pem", cosign)):
        pass


def test_the_signature_comes_before_the_parser(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pt"
    junk.write_bytes(b"junk")
    public = pem(ed25519.Ed25519PrivateKey.generate(), tmp_path / "key.pem")
    with pytest.raises(Refusal, match="SignatureInvalid"), opened(junk.as_uri(), "", Trust(public, "AAAA")):
        pass


def test_signed_folders_and_mounted_keys(tmp_path: Path) -> None:
    folder = class_folder(tmp_path, {"class": "network.py:Network", "inputs": ROWS})
    curve = ec.generate_private_key(ec.SECP256R1())
    lines = folder_lines(folder).encode()
    assert hashlib.sha256(lines).hexdigest() == digest_of(folder)
    signature = tmp_path / "signature"
    signature.write_bytes(base64.b64encode(curve.sign(lines, ec.ECDSA(hashes.SHA256()))) + b"\n")
    keys = tmp_path / "keys"
    (keys / "..data").mkdir(parents=True)
    pem(curve, keys / "cosign.pub")
    access = Access(public_key=keys, signature_uri=signature.as_uri())
    settings = ModelSettings("m", "v1", "r", folder.as_uri(), device=Device.CPU, access=access)
    with arrived(settings) as artefact:
        assert artefact.signed
    (keys / "second.pub").write_text("")
    with pytest.raises(Refusal, match="2 keys are mounted"), arrived(settings):
        pass
    for lonely in (Access(signature="AAAA"), Access(allow_pickle=True)):
        alone = ModelSettings("m", "v1", "r", folder.as_uri(), access=lonely)
        with pytest.raises(Refusal, match="need --public-key"), arrived(alone):
            pass


def test_code_from_elsewhere_runs_only_when_it_was_named(tmp_path: Path, remote: RemoteServer) -> None:
    folder = handler_folder(tmp_path)
    bucket(remote, {f"h/{name}": data for name, data in content(folder).items()})
    store = s3_store(tmp_path, remote)
    with pytest.raises(Refusal, match="ArtefactUnverified"), opened("s3://models/h", "", store=store):
        pass
    with opened("s3://models/h", digest_of(folder), store=store) as artefact:
        assert artefact.fetched and artefact.verified and artefact.kind.value == "a Python handler"


def test_pickles_need_a_signature_and_a_permission(tmp_path: Path) -> None:
    config = {"class": "network.py:Network", "inputs": ROWS, "model": "model.pt"}
    folder = class_folder(tmp_path, config, "model.pt")
    state = torch.load(folder / "model.pt", weights_only=True)
    torch.save({**state, "note": Path("/")}, folder / "model.pt")
    key = ed25519.Ed25519PrivateKey.generate()
    signature = base64.b64encode(key.sign(digest_of(folder).encode())).decode()
    public = pem(key, tmp_path / "key.pem")
    settings = ModelSettings("m", "v1", "r", folder.as_uri(), device=Device.CPU)
    for trust in (Trust(), Trust(public, signature)):
        digest = digest_of(folder)
        with opened(folder.as_uri(), digest, trust) as artefact, pytest.raises(Refusal, match="UnsafeModel"):
            load(artefact, settings)
    with opened(folder.as_uri(), "", Trust(public, signature, allow_pickle=True)) as artefact:
        assert load(artefact, settings).program.signature.batched
    assert yaml.safe_load((folder / "config.yaml").read_text())["model"] == "model.pt"


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///key", "s3://ab/key", "gs://", "gs:///x", "hf://owner", "oci://", "models:/m"]
)
def test_a_uri_that_names_nothing_is_a_bad_argument(uri: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        Store(tmp_path).fetch(uri, "")
    assert (caught.value.reason, caught.value.code) == ("BadURI", ExitCode.BAD_ARGUMENTS)
