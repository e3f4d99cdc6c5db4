"""Kubernetes Events that a decision asks for; posted only once the status that explains them is written."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["EventRecord"]


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One Event on the ModelDeployment."""

    reason: str
    """CamelCase word, such as RolloutStarted."""
    message: str
    type: Literal["Normal", "Warning"] = "Normal"
