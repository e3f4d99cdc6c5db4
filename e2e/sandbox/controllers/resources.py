"""Discovery: which resources a server has."""

from __future__ import annotations

import asyncio

from .client import ApiClient, ApiError, Obj, Resource

# Virtual or never owned; watching them would only cost.
IGNORED = {("", "events"), ("events.k8s.io", "events")}


class Discovery:
    """Asks the server for its groups and resources, in their preferred versions."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._by_kind: dict[tuple[str, str], Resource] = {}

    async def collectable(self) -> list[Resource]:
        """Every resource that can be listed, watched and deleted, once, in its group's preferred version."""
        groups = (await self._client.request("GET", "/apis")).get("groups") or []
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        answers = await asyncio.gather(*(self._resources(version) for version in versions))
        found = []
        for resource, verbs in (entry for answer in answers for entry in answer):
            if {"list", "watch", "delete"} <= verbs and (resource.group, resource.plural) not in IGNORED:
                found.append(resource)
        return found

    async def namespaced(self) -> list[Resource]:
        """Resources whose objects live in namespaces and can be deleted."""
        return [resource for resource in await self.collectable() if resource.namespaced]

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a kind, or None if the server has none."""
        known = self._by_kind.get((api_version, kind))
        if known is None:
            for resource, _ in await self._resources(api_version):
                self._by_kind[(api_version, resource.kind)] = resource
            known = self._by_kind.get((api_version, kind))
        return known

    async def _resources(self, api_version: str) -> list[tuple[Resource, set[str]]]:
        path = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        try:
            answer = await self._client.request("GET", path)
        except ApiError as error:
            if error.code in (404, 503):
                return []
            raise
        group, _, version = api_version.rpartition("/")
        return [_entry(group, version, entry) for entry in answer["resources"] if "/" not in entry["name"]]


def _entry(group: str, version: str, entry: Obj) -> tuple[Resource, set[str]]:
    resource = Resource(group, version, entry["name"], entry["kind"], bool(entry["namespaced"]))
    return resource, set(entry["verbs"])
