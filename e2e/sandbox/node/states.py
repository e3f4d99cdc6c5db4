"""What a container is doing, as the API writes it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from e2e.sandbox.controllers.client import Obj
from e2e.sandbox.controllers.times import to_text


class Role(Enum):
    """What a container is for within its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"


@dataclass(frozen=True)
class Waiting:
    """Not running yet, and why."""

    reason: str
    message: str = ""

    def to_api(self) -> Obj:
        """As `state` in a container status."""
        return {"waiting": {"reason": self.reason, **({"message": self.message} if self.message else {})}}


@dataclass(frozen=True)
class Running:
    """Running since."""

    since: datetime
    container_id: str

    def to_api(self) -> Obj:
        """As `state` in a container status."""
        return {"running": {"startedAt": to_text(self.since)}}


@dataclass(frozen=True)
class Terminated:
    """Ended, how and when."""

    exit_code: int
    reason: str
    message: str
    started: datetime
    finished: datetime
    container_id: str

    def to_api(self) -> Obj:
        """As `state` or `lastState` in a container status."""
        fields: Obj = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": to_text(self.started),
            "finishedAt": to_text(self.finished),
            "containerID": self.container_id,
        }
        if self.message:
            fields["message"] = self.message
        return {"terminated": fields}


State = Waiting | Running | Terminated


@dataclass(frozen=True)
class ContainerView:
    """A container's state at one moment, for the pod's status."""

    name: str
    image: str
    role: Role
    state: State
    last: Terminated | None
    restarts: int
    ready: bool
    started: bool
    container_id: str

    def to_api(self) -> Obj:
        """As an entry of `containerStatuses`."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"sandbox://{self.image}" if self.container_id else "",
            "state": self.state.to_api(),
            "lastState": self.last.to_api() if self.last else {},
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
            **({"containerID": self.container_id} if self.container_id else {}),
        }
