"""The how-to for signed models: its example verifies, and its commands make signatures that the server takes."""

import base64
import hashlib
import re
import subprocess
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.docs.blocks import ROOT, blocks, manifests

HOWTO = ROOT / "docs/howto/signed-models.md"


def verify(public: bytes, signature: str, digest: str) -> None:
    """As the server does: the digest is known, and the signature is over it; raises where it is not."""
    key = load_pem_public_key(public)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    algorithm = ec.ECDSA(utils.Prehashed(hashes.SHA256()))
    key.verify(base64.b64decode(signature), bytes.fromhex(digest), algorithm)


def test_the_example_verifies() -> None:
    objects = {obj["kind"]: obj for _, obj in manifests()[HOWTO]}
    [version] = objects["ModelDeployment"]["spec"]["versions"]
    keys = objects["ConfigMap"]["data"]
    verify(keys[version["signature"]["publicKey"]["key"]].encode(), version["signature"]["value"], version["sha256"])


def test_the_commands_sign(tmp_path: Path) -> None:
    (tmp_path / "v2.pt2").write_bytes(b"a model")
    lines = [line for block in blocks() if block.page == HOWTO for line in block.text.splitlines()]
    wanted = [line for line in lines if line.startswith("openssl") and "folder" not in line]
    assert len(wanted) == 3
    printed = [
        subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for line in wanted
    ]
    digest = hashlib.sha256(b"a model").hexdigest()
    verify((tmp_path / "release.pub").read_bytes(), printed[-1], digest)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", printed[-1])
