"""Those who are told what the engine measures and decides: the web page's record and the notifications."""

from collections.abc import Mapping
from typing import Any, Protocol

from slipway.api.status import ModelDeploymentStatus

__all__ = ["Witness"]


class Witness(Protocol):
    """Is told in passing: it returns at once, and what it cannot do delays or fails nothing."""

    def measured(self) -> None:
        """There is a new metrics snapshot; told on standbys as well."""
        ...

    def decided(self, raw: Mapping[str, Any], status: ModelDeploymentStatus, now: float) -> None:
        """A reconcile has led from the object as read to a status, which is written."""
        ...
