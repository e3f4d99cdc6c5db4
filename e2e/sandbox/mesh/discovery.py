"""Envoy's discovery protocol over HTTP with long polls: Envoy asks, and is answered when there is something new.

Every poll names the version Envoy has in use, so each poll is also the confirmation (or refusal) of the answer
before it. That tells when a route or a cluster is really in effect.
"""

import asyncio
import json
from dataclasses import dataclass, field

from aiohttp import web

from e2e.sandbox.mesh.names import Json

CLUSTERS = "clusters"
ENDPOINTS = "endpoints"
ROUTES = "routes"
EXTENSIONS = "extension_configs"
TYPES = {
    CLUSTERS: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    ENDPOINTS: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    ROUTES: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    EXTENSIONS: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
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
    subscriptions: int = 0
    served_subscriptions: int = 0
    dropped: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class DiscoveryServer:
    """Answers Envoy's polls for clusters, endpoints, routes and settings of filters."""

    def __init__(self) -> None:
        self._resources: dict[tuple[str, str], Resource] = {}

    def register(self, application: web.Application) -> None:
        """Add the paths Envoy polls to a web application."""
        for kind in TYPES:
            application.router.add_post(f"/v3/discovery:{kind}", self._poll)

    async def publish(self, kind: str, name: str, content: list[Json]) -> bool:
        """Offer new content for a resource; False when it is what Envoy is already offered."""
        resource = self._resources.get((kind, name))
        if resource is None:
            self._resources[kind, name] = Resource(content)
            return True
        if resource.content == content:
            return False
        async with resource.changed:
            resource.content = content
            resource.version += 1
            resource.changed.notify_all()
        return True

    async def confirmed(self, kind: str, name: str) -> None:
        """Wait until Envoy uses what was last published.

        Raises RefusedError when Envoy turns it down.
        """
        resource = self._resources[kind, name]
        wanted = resource.version
        async with resource.changed:
            await resource.changed.wait_for(lambda: resource.confirmed >= wanted or resource.refused >= wanted)
        if resource.confirmed < wanted:
            raise RefusedError(f"Envoy refused its {kind} (version {wanted})")

    def subscriptions(self, kind: str, name: str) -> int:
        """How often Envoy began to ask for a resource."""
        return self._resources[kind, name].subscriptions

    async def served_anew(self, kind: str, name: str, before: int) -> None:
        """Wait until a subscription later than the first `before` ones has its answer in use."""
        resource = self._resources[kind, name]
        async with resource.changed:
            await resource.changed.wait_for(lambda: resource.served_subscriptions > before)

    async def drop(self, kind: str, name: str) -> None:
        """Forget a resource that Envoy has no more use for."""
        resource = self._resources.pop((kind, name), None)
        if resource is not None:
            async with resource.changed:
                resource.dropped = True
                resource.changed.notify_all()

    async def close(self) -> None:
        """Let go of all polls that are held."""
        for kind, name in list(self._resources):
            await self.drop(kind, name)

    async def _poll(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        kind = request.path.rsplit(":", 1)[1]
        in_use = int(body.get("version_info") or 0)
        resource = self._resources.get((kind, ",".join(body.get("resource_names", []))))
        if resource is None:
            return web.Response(status=404)
        async with resource.changed:
            seen = _note_poll(kind, resource, in_use)
            resource.changed.notify_all()
            try:
                async with asyncio.timeout(HOLD_SECONDS):
                    await resource.changed.wait_for(lambda: resource.version > seen or resource.dropped)
            except TimeoutError:
                return web.Response(status=304)
        if resource.dropped:
            return web.Response(status=404)
        resource.sent = resource.version
        return web.Response(body=_answer(kind, resource), content_type="application/json")


def _note_poll(kind: str, resource: Resource, in_use: int) -> int:
    """Learn from the version Envoy says it uses (0: none); returns the newest that need not be offered again."""
    resource.confirmed = max(resource.confirmed, in_use)
    if in_use:
        resource.served_subscriptions = resource.subscriptions
    else:
        resource.subscriptions += 1
    # Asking for endpoints from the beginning means a new subscription (its cluster was replaced), no refusal.
    if resource.sent > in_use and (in_use or kind != ENDPOINTS):
        resource.refused = resource.sent
        # What was refused would only be refused again, without end.
        return resource.refused
    return in_use


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
