"""Where the server finds the model's artefact, and what has to be mounted for that."""

from dataclasses import dataclass
from typing import Any

from slipway.api.versions import Version

__all__ = ["KEY_PATH", "STORAGE_PATH", "Artefact", "access_arguments", "artefact_of", "supply_mounts", "supply_volumes"]

_PVC = "pvc://"
VOLUME_NAME = "model"
STORAGE_PATH = "/etc/slipway/storage"
"""Folder in which the keys of the storage Secret lie as files."""
KEY_PATH = "/etc/slipway/signature-key"
"""Folder with the public key as its only file."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """An artefact as the server container sees it."""

    uri: str
    """What the server is told."""
    claim: str = ""
    """PersistentVolumeClaim that holds it; empty when the server fetches it by itself."""
    volume: str = VOLUME_NAME
    """Name of the claim's volume."""

    @property
    def mount_path(self) -> str:
        """Where the claim is mounted."""
        return f"/models/{self.claim}"

    def volumes(self) -> list[dict[str, Any]]:
        """Volumes of the pod."""
        if not self.claim:
            return []
        return [{"name": self.volume, "persistentVolumeClaim": {"claimName": self.claim, "readOnly": True}}]

    def mounts(self) -> list[dict[str, Any]]:
        """Mounts of the server container."""
        return [{"name": self.volume, "mountPath": self.mount_path, "readOnly": True}] if self.claim else []


def artefact_of(uri: str) -> Artefact:
    """``pvc://CLAIM/path`` becomes a mounted claim and a file URI; every other URI is left to the server."""
    if not uri.startswith(_PVC):
        return Artefact(uri)
    claim, _, path = uri.removeprefix(_PVC).partition("/")
    mounted = Artefact(uri="", claim=claim)
    return Artefact(uri=f"file://{mounted.mount_path}/{path}".rstrip("/"), claim=claim)


def access_arguments(version: Version) -> list[str]:
    """Flags with which the server gets at the artefact and checks where it comes from."""
    arguments = ["--storage-secret", STORAGE_PATH] if version.storage_secret else []
    signature = version.signature
    if signature is None:
        return arguments
    arguments += ["--public-key", KEY_PATH]
    if signature.uri:
        return [*arguments, "--signature-uri", artefact_of(signature.uri).uri]
    return [*arguments, "--signature", signature.value]


def supply_volumes(version: Version) -> list[dict[str, Any]]:
    """Volumes for the artefact, its signature and key, and the credentials of its storage."""
    volumes = [volume for artefact in _artefacts(version) for volume in artefact.volumes()]
    if version.storage_secret:
        volumes.append({"name": "storage", "secret": {"secretName": version.storage_secret}})
    if version.signature is not None:
        key = version.signature.public_key
        source: dict[str, Any] = {"name": key.config_map}
        if key.key:
            source["items"] = [{"key": key.key, "path": key.key}]
        volumes.append({"name": "signature-key", "configMap": source})
    return volumes


def supply_mounts(version: Version) -> list[dict[str, Any]]:
    """Mounts of the volumes of ``supply_volumes``."""
    mounts = [mount for artefact in _artefacts(version) for mount in artefact.mounts()]
    if version.storage_secret:
        mounts.append({"name": "storage", "mountPath": STORAGE_PATH, "readOnly": True})
    if version.signature is not None:
        mounts.append({"name": "signature-key", "mountPath": KEY_PATH, "readOnly": True})
    return mounts


def _artefacts(version: Version) -> list[Artefact]:
    """The model, and its signature where that lies in a claim of its own."""
    model = artefact_of(version.uri)
    if version.signature is None:
        return [model]
    signature = artefact_of(version.signature.uri)
    if signature.claim in ("", model.claim):
        return [model]
    return [model, Artefact(signature.uri, signature.claim, volume="signature")]
