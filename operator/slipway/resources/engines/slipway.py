"""Slipway's own torch server: fetches and verifies its model itself, and drains by itself."""

from typing import Any

from slipway.api.revisions import Revision
from slipway.api.versions import Engine
from slipway.resources.arguments import GOLDENS_PATH, serve_arguments
from slipway.resources.artefacts import supply_mounts, supply_volumes
from slipway.resources.engines.server import Server, default_ports
from slipway.resources.identity import Identity, RenderOptions
from slipway.resources.shadow import shadow_mount, shadow_volume
from slipway.resources.tracing import tracing_environment

__all__ = ["slipway"]


def slipway(identity: Identity, revision: Revision, options: RenderOptions) -> Server:
    """The server that stable's pods need for repeating requests; it has every feature of the API."""
    version = revision.version
    volumes = [shadow_volume(identity), *supply_volumes(version)]
    mounts: list[dict[str, Any]] = [shadow_mount(), *supply_mounts(version)]
    if version.goldens is not None:
        volumes.append({"name": "goldens", "configMap": {"name": version.goldens.config_map}})
        mounts.append({"name": "goldens", "mountPath": GOLDENS_PATH, "readOnly": True})
    return Server(
        image=revision.runtime.image or options.runtime_image,
        args=tuple(serve_arguments(identity.name, revision)),
        ports=default_ports(Engine.SLIPWAY),
        environment=tracing_environment(identity, revision),
        volumes=tuple(volumes),
        mounts=tuple(mounts),
    )
