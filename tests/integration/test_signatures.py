"""Signed models: the key comes from a ConfigMap, credentials from a Secret, and the pods check before they load."""

import base64

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.sandbox.controllers.client import CONFIG_MAPS, SECRETS

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def test_a_signed_model_is_served_and_one_with_anothers_signature_gets_no_traffic(bench):
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    metadata = {"name": "keys", "namespace": bench.namespace}
    other = {"cosign.pub": pem.decode(), "old.pub": "no key"}
    await bench.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": other}
    )
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {**metadata, "name": "s3"}}
    await bench.client.create(SECRETS, {**secret, "data": {"AWS_ACCESS_KEY_ID": base64.b64encode(b"AKID").decode()}})
    # What cosign sign-blob makes of the file.
    made = key.sign(bench.models["good-1"].path.read_bytes(), ec.ECDSA(hashes.SHA256()))
    signature = {
        "publicKey": {"configMap": "keys", "key": "cosign.pub"},
        "value": base64.b64encode(made).decode(),
    }
    one = bench.version("v1", signature=signature, storageSecret="s3")
    await bench.apply(bench.declare("m", one))
    await bench.serving("m")
    assert await bench.infer("m") == (200, "v1")
    two = bench.version("v2", "good-2", signature=signature)
    await bench.apply(bench.declare("m", one, two, serve="v2"))
    status = await bench.finished("m", "v2", "Failed")
    assert status["rollout"]["reason"] == "ArtefactRefused"
    assert "SignatureInvalid" in status["rollout"]["message"]
    assert await bench.infer("m") == (200, "v1")
