"""The model of a server that cannot fetch and verify it by itself: an init container brings it to a shared volume."""

from typing import Any

from slipway.api.revisions import Revision
from slipway.resources.artefacts import access_arguments, artefact_of, supply_mounts, supply_volumes
from slipway.resources.identity import RenderOptions

__all__ = [
    "FETCH",
    "MODEL_NAME",
    "MODEL_PATH",
    "REPOSITORY_PATH",
    "fetcher",
    "model_mounts",
    "model_volumes",
    "shared_memory",
]

FETCH = "fetch"
"""Name of the init container."""
REPOSITORY_PATH = "/mnt/models"
"""Folder of models, in the init container and in the server's."""
MODEL_NAME = "model"
MODEL_PATH = f"{REPOSITORY_PATH}/{MODEL_NAME}"
"""The model, for servers that are given a folder."""
LARGEST = 1024**4
"""Bytes of a model: language models exceed what the runtime takes by default."""
_VOLUME = "models"


def shared_memory() -> tuple[dict[str, Any], dict[str, Any]]:
    """Volume and mount of the memory that processes of one server share."""
    return {"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108


def model_volumes(revision: Revision) -> tuple[dict[str, Any], ...]:
    """Volumes of the pod: the models, shared memory for the server's own processes, and what fetching needs."""
    shared, _ = shared_memory()
    return {"name": _VOLUME, "emptyDir": {}}, shared, *supply_volumes(revision.version)


def model_mounts() -> tuple[dict[str, Any], ...]:
    """Mounts of the server's container, which gets neither the storage's credentials nor the claim."""
    _, shared = shared_memory()
    return {"name": _VOLUME, "mountPath": REPOSITORY_PATH, "readOnly": True}, shared


def fetcher(
    revision: Revision, options: RenderOptions, environment: list[dict[str, Any]], *, name: str, layout: str
) -> dict[str, Any]:
    """The init container: Slipway's runtime image, which checks digest and signature before the server starts."""
    version = revision.version
    arguments = ["fetch", artefact_of(version.uri).uri, "--to", REPOSITORY_PATH, "--name", name, "--layout", layout]
    arguments += ["--max-artefact-bytes", str(LARGEST)]
    if version.sha256:
        arguments += ["--sha256", version.sha256]
    return {
        "name": FETCH,
        "image": options.runtime_image,
        "args": [*arguments, *access_arguments(version)],
        "env": environment,
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": _VOLUME, "mountPath": REPOSITORY_PATH},
            *supply_mounts(version),
        ],
    }
