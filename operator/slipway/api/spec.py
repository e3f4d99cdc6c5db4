"""The spec of a ModelDeployment."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from slipway.api.autoscaling import Autoscaling
from slipway.api.rollout import Rollout
from slipway.api.traffic import Traffic
from slipway.api.versions import Runtime, Version
from slipway.api.wire import WireModel, keyed_by

__all__ = ["GROUP", "KIND", "PLURAL", "VERSION", "ModelDeploymentSpec"]

GROUP = "slipway.dev"
VERSION = "v1alpha1"
KIND = "ModelDeployment"
PLURAL = "modeldeployments"


class ModelDeploymentSpec(WireModel):
    """Which model versions exist, which one production serves, how traffic moves to it and how many replicas the
    load needs."""

    versions: tuple[Version, ...] = Field(min_length=1, max_length=16, json_schema_extra=keyed_by("name"))
    """Everything that may be live: the only place a version is described."""
    serve: str = Field(default="", max_length=40)
    """The version wanted in production. Changing it starts a rollout, reverting it rolls back. Optional while
    there is one version."""
    runtime: Runtime = Runtime()
    """How pods of a version run."""
    traffic: Traffic = Traffic()
    """How requests reach a version."""
    rollout: Rollout = Rollout()
    """The way from the served version to the new one."""
    autoscaling: Autoscaling = Autoscaling()
    """How many replicas each live version has."""
    replicas: int = Field(default=1, ge=0, le=10_000)
    """Replicas of the stable version with autoscaling mode External or None; the scale subresource points here."""
    suspend: bool = False
    """Change nothing; status stays live."""

    @property
    def served(self) -> str:
        """Name of the version wanted in production."""
        return self.serve or self.versions[0].name

    def version(self, name: str) -> Version | None:
        """The version of that name, if the spec still has it."""
        return next((version for version in self.versions if version.name == name), None)

    @classmethod
    def from_wire(cls, raw: Mapping[str, Any]) -> "ModelDeploymentSpec":
        """Parse the JSON form; raises ``pydantic.ValidationError``. See :mod:`slipway.api.validation` for users'
        errors."""
        return cls.model_validate(raw)
