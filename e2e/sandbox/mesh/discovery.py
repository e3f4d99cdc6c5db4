"""Envoy's discovery protocol over HTTP with long polls: Envoy asks, and is answered when there is something new.

Every poll names the version Envoy has in use, so each poll is also the confirmation (or refusal) of the answer
before it. That tells when a route or a cluster is really in effect.
"""

import asyncio
import json
from dataclasses import dataclass

from aiohttp import web

from e2e.sandbox.mesh.names import Json

CLUSTERS = "clusters"
ENDPOINTS = "endpoints"
ROUTES = "routes"
TYPES = {
    CLUSTERS: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    ENDPOINTS: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    ROUTES: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
}
HOLD_SECONDS = 20.0
"""How long a poll is held when nothing changes; Envoy's own limit must be longer."""


class RefusedError(Exception):
    """Envoy did not accept a configuration; it keeps the one before."""


@dataclass
class Resource:
    """One answer Envoy can ask for, with what it was sent and what it confirmed (0: nothing yet)."""

    content: list[Json]
    version: int = 1
    sent: int = 0
    confirmed: int = 0
    refused: int = 0


class DiscoveryServer:
    """Answers Envoy's polls for clusters, endpoints and routes."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._changed = asyncio.Condition()

    def register(self, application: web.Application) -> None:
        """Add the paths Envoy polls to a web application."""
        for kind in TYPES:
            application.router.add_post(f"/v3/discovery:{kind}", self._poll)

    async def publish(self, kind: str, name: str, content: list[Json]) -> bool:
        """Offer new content for a resource; False when it is what Envoy is already offered."""
        resource = self._resources.get((kind, name))
        if resource is None:
            self._resources[kind, name] = Resource(content)
        elif resource.content == content:
            return False
        else:
            resource.content = content
            resource.version += 1
        async with self._changed:
            self._changed.notify_all()
        return True

    async def confirmed(self, kind: str, name: str) -> None:
        """Wait until Envoy uses what was last published.

        Raises RefusedError when Envoy turns it down.
        """
        resource = self._resources[kind, name]
        wanted = resource.version
        async with self._changed:
            await self._changed.wait_for(lambda: resource.confirmed >= wanted or resource.refused >= wanted)
        if resource.confirmed < wanted:
            raise RefusedError(f"Envoy refused its {kind} (version {wanted})")

    def forget(self, kind: str, name: str) -> None:
        """Drop a resource that Envoy has no more use for."""
        self._resources.pop((kind, name), None)

    async def close(self) -> None:
        """Let go of all polls that are held."""
        self._resources.clear()
        async with self._changed:
            self._changed.notify_all()

    async def _poll(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        kind = request.path.rsplit(":", 1)[1]
        name = ",".join(body.get("resource_names", []))
        in_use = int(body.get("version_info") or 0)
        resource = self._resources.get((kind, name))
        if resource is None:
            return web.Response(status=404)
        async with self._changed:
            if in_use:
                resource.confirmed = max(resource.confirmed, in_use)
            # Asking for endpoints from the beginning means a new subscription (its cluster was replaced), no refusal.
            if resource.sent > in_use and (in_use or kind != ENDPOINTS):
                resource.refused = resource.sent
            self._changed.notify_all()
            # A refused version is not offered again: that would only be refused again, without end.
            seen = max(in_use, resource.refused)
            try:
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._changed.wait_for(lambda: resource.version > seen or (kind, name) not in self._resources)
            except TimeoutError:
                return web.Response(status=304)
        if (kind, name) not in self._resources:
            return web.Response(status=404)
        resource.sent = resource.version
        return web.Response(body=_answer(kind, resource), content_type="application/json")


def _answer(kind: str, resource: Resource) -> bytes:
    typed = [{"@type": TYPES[kind], **item} for item in resource.content]
    return json.dumps(
        {
            "version_info": str(resource.version),
            "type_url": TYPES[kind],
            "resources": typed,
            "nonce": str(resource.version),
        }
    ).encode()
