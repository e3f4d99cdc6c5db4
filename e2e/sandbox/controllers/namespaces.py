"""Namespace deletion: content first, then the namespace's own finalizer."""

from __future__ import annotations

from .client import EVENTS, NAMESPACES, ApiClient, ApiError, Obj, Resource
from .control_loop import ControlLoop
from .informer import Informer
from .resources import Discovery

FINALIZER = "kubernetes"
POLL_SECONDS = 0.5


class NamespaceController:
    """Empties namespaces that are being deleted and lets them go."""

    def __init__(self, client: ApiClient, discovery: Discovery, namespaces: Informer) -> None:
        self._client = client
        self._discovery = discovery
        self._namespaces = namespaces
        self.loop: ControlLoop[str] = ControlLoop("namespace", self.reconcile)
        namespaces.add_handler(lambda old, new: self.loop.queue.add((new or old or {})["metadata"]["name"]))

    async def reconcile(self, name: str) -> None:
        """Delete what is left in one namespace; finish it when nothing is."""
        namespace = self._namespaces.get("", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        if FINALIZER not in (namespace["spec"].get("finalizers") or ()):
            return
        left = 0
        for resource in [*await self._discovery.namespaced(), EVENTS]:
            left += await self._empty(resource, name)
        if left:
            self.loop.queue.add_after(name, POLL_SECONDS)
            return
        await self._finalize(namespace)

    async def _empty(self, resource: Resource, namespace: str) -> int:
        """Delete the collection; returns how many objects are still there."""
        try:
            items = (await self._client.list_all(resource, namespace=namespace, metadata_only=True)).get("items") or []
            if any(not item["metadata"].get("deletionTimestamp") for item in items):
                body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
                await self._client.request("DELETE", resource.path(namespace), body)
                items = (await self._client.list_all(resource, namespace=namespace, metadata_only=True)).get("items")
        except ApiError as error:
            if error.code in (404, 405):
                return 0
            raise
        return len(items or ())

    async def _finalize(self, namespace: Obj) -> None:
        kept = [entry for entry in namespace["spec"]["finalizers"] if entry != FINALIZER]
        body = {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}
        try:
            await self._client.request("PUT", NAMESPACES.path_of(namespace, "finalize"), body)
        except ApiError as error:
            if not error.not_found:
                raise
