"""What a container is started with: command line, environment, folders."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from e2e.sandbox.controllers.client import ApiClient, Obj

from .environment import command_line, container_environment
from .errors import ContainerConfigError
from .identity import write_pod_kubeconfig
from .images import Image
from .pod_context import PodContext
from .volumes import Mounts


@dataclass(frozen=True)
class Launch:
    """Everything needed to start a container's process."""

    argv: tuple[str, ...]
    env: dict[str, str]
    folder: Path
    message_file: Path
    mounts: Mounts


async def prepare_launch(client: ApiClient, context: PodContext, spec: Obj, image: Image, folder: Path) -> Launch:
    """Resolve a container's definition; `folder` is the container's own.

    Raises ContainerConfigError when something it refers to is missing.
    """
    values = await container_environment(client, context.pod, spec, context.address, context.host_address)
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mounts = context.volumes.mounts_of(spec, root, values)
    message_file = folder / "termination-log"
    message_file.write_bytes(b"")
    argv = command_line(spec, image, values, mounts.rewrite)
    if not argv:
        raise ContainerConfigError("no command specified")
    kubeconfig = await write_pod_kubeconfig(client, context.pod, context.settings.tokens_file, context.folder)
    env = {
        **context.environment(),
        **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}),
        **image.env,
        "SLIPWAY_HOST": context.address,
        "SLIPWAY_TERMINATION_LOG": str(message_file),
        "SLIPWAY_MOUNT_ROOT": str(root),
        **context.gpu_environment(spec["name"]),
        **{name: mounts.rewrite(value) for name, value in values.items()},
    }
    return Launch(tuple(argv), env, _working_folder(spec, mounts, root), message_file, mounts)


def _working_folder(spec: Obj, mounts: Mounts, root: Path) -> Path:
    folder = Path(mounts.rewrite(spec.get("workingDir") or str(root)))
    return folder if folder.is_dir() else root
