"""Signatures over a model's digest: ECDSA P-256 (as cosign makes them) or Ed25519."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from slipway_runtime.refusal import ExitCode, Refusal

MAX_SIGNATURE_BYTES = 64 * 1024
MAX_KEY_BYTES = 64 * 1024


@dataclass(frozen=True)
class Trust:
    """Whose signature a model must carry, and which permissions a signed model has."""

    public_key: Path | None = None
    """PEM file, or a folder with one file in it (a mounted ConfigMap); None: no signature is asked for."""
    signature: str = ""
    """The signature in base64."""
    allow_pickle: bool = False
    """Let a signed model be unpickled."""


def verify(trust: Trust, digest: str) -> bool:
    """Whether the digest (hex) carries the signature; False when none is asked for.

    ECDSA signs the artefact itself, as ``cosign sign-blob`` does (of a folder: the lines of its digest).
    Ed25519 signs the 64 hexadecimal digits. Raises Refusal (SignatureInvalid, or exit code 64 for a key or a
    signature that cannot be read).
    """
    if trust.public_key is None:
        return False
    key = _public_key(trust.public_key)
    try:
        signature = base64.b64decode("".join(trust.signature.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal("BadSignature", "the signature is not in base64", ExitCode.BAD_ARGUMENTS) from error
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, digest.encode())
        else:
            key.verify(signature, bytes.fromhex(digest), ECDSA(Prehashed(SHA256())))
    except InvalidSignature as error:
        raise Refusal("SignatureInvalid", f"the signature does not fit the model of sha256 {digest}") from error
    return True


def _public_key(path: Path) -> EllipticCurvePublicKey | Ed25519PublicKey:
    try:
        key = load_pem_public_key(_key_file(path).read_bytes()[:MAX_KEY_BYTES])
    except OSError as error:
        raise Refusal("BadPublicKey", "the public key cannot be read", ExitCode.BAD_ARGUMENTS) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Refusal("BadPublicKey", "the public key is no PEM that can be read", ExitCode.BAD_ARGUMENTS) from error
    if isinstance(key, Ed25519PublicKey):
        return key
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key
    raise Refusal("BadPublicKey", "the public key must be ECDSA P-256 or Ed25519", ExitCode.BAD_ARGUMENTS)


def _key_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    # Kubernetes keeps links beginning with two dots in such folders.
    files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith("..")]
    if len(files) != 1:
        raise Refusal("BadPublicKey", f"{len(files)} keys are mounted, name the one to use", ExitCode.BAD_ARGUMENTS)
    return files[0]
