"""Where the server finds the model's artefact, and what has to be mounted for that."""

from dataclasses import dataclass
from typing import Any

__all__ = ["Artefact", "artefact_of"]

_PVC = "pvc://"
VOLUME_NAME = "model"


@dataclass(frozen=True, slots=True)
class Artefact:
    """An artefact as the server container sees it."""

    uri: str
    """What the server is told."""
    claim: str = ""
    """PersistentVolumeClaim that holds it; empty when the server fetches it by itself."""

    @property
    def mount_path(self) -> str:
        """Where the claim is mounted."""
        return f"/models/{self.claim}"

    def volumes(self) -> list[dict[str, Any]]:
        """Volumes of the pod."""
        if not self.claim:
            return []
        return [{"name": VOLUME_NAME, "persistentVolumeClaim": {"claimName": self.claim, "readOnly": True}}]

    def mounts(self) -> list[dict[str, Any]]:
        """Mounts of the server container."""
        return [{"name": VOLUME_NAME, "mountPath": self.mount_path, "readOnly": True}] if self.claim else []


def artefact_of(uri: str) -> Artefact:
    """``pvc://CLAIM/path`` becomes a mounted claim and a file URI; every other URI is left to the server."""
    if not uri.startswith(_PVC):
        return Artefact(uri)
    claim, _, path = uri.removeprefix(_PVC).partition("/")
    mounted = Artefact(uri="", claim=claim)
    return Artefact(uri=f"file://{mounted.mount_path}/{path}".rstrip("/"), claim=claim)
