"""Why a container cannot start yet."""

from __future__ import annotations


class ContainerConfigError(Exception):
    """Something the container's definition refers to is missing (CreateContainerConfigError)."""


class MountError(Exception):
    """A volume cannot be made ready yet (FailedMount)."""
