"""What happened when: the status of the ModelDeployment, looked at several times a second while the demo runs."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from e2e.demo.manifest import MODEL, NAMESPACE
from e2e.sandbox.controllers.client import ApiClient, ApiError

__all__ = ["Look", "Timeline"]

PATH = f"/apis/slipway.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments/{MODEL}"
SECONDS_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class Look:
    """The status at one moment."""

    at: float
    status: dict[str, Any]

    @property
    def phase(self) -> str:
        """One word for the whole object."""
        return str(self.status.get("phase", ""))

    @property
    def rollout(self) -> dict[str, Any]:
        """The present or last rollout; empty before the first."""
        return dict(self.status.get("rollout") or {})

    @property
    def versions(self) -> dict[str, dict[str, Any]]:
        """Live versions by name."""
        return {entry["name"]: entry for entry in self.status.get("versions", ())}

    def weight(self, version: str) -> int:
        """What the router holds for a version."""
        return int(self.versions.get(version, {}).get("weight", {}).get("applied", 0))


@dataclass
class Timeline:
    """All looks; an operator that is away just gives the same status for longer."""

    client: ApiClient
    path: str = PATH
    """Of the ModelDeployment in the API."""
    looks: list[Look] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                found = await self.client.request("GET", self.path)
            except ApiError:
                found = {}
            await self.see(found)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    async def see(self, obj: dict[str, Any]) -> None:
        """Take an object's status as the newest look."""
        self.looks.append(Look(time.time(), dict(obj.get("status") or {})))
        async with self.changed:
            self.changed.notify_all()

    @property
    def now(self) -> Look:
        """The newest look."""
        return self.looks[-1] if self.looks else Look(time.time(), {})

    async def until(self, what: str, holds: Any, seconds: float) -> Look:
        """Wait for a look for which ``holds`` is true; TimeoutError names what was waited for and the last status."""
        try:
            async with asyncio.timeout(seconds), self.changed:
                await self.changed.wait_for(lambda: bool(self.looks) and holds(self.now))
        except TimeoutError as error:
            rollout = self.now.rollout
            raise TimeoutError(
                f"{what} did not happen within {seconds:g} s: phase {self.now.phase}, "
                f"rollout {rollout.get('stage')}: {rollout.get('reason')}: {rollout.get('message')}"
            ) from error
        return self.now
