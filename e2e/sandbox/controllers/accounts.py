"""What every namespace and claim gets by itself: service account, root certificate, a bound claim."""

from __future__ import annotations

from pathlib import Path

from .client import CLAIMS, CONFIG_MAPS, SERVICE_ACCOUNTS, ApiClient, ApiError, Obj, Resource
from .control_loop import ControlLoop
from .informer import Informer, Key, key_of

ROOT_CERTIFICATE = "kube-root-ca.crt"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"


class NamespaceDefaultsController:
    """Creates the `default` ServiceAccount and the ConfigMap with the server's certificate in each namespace."""

    def __init__(self, client: ApiClient, namespaces: Informer, accounts: Informer) -> None:
        self._client = client
        self._namespaces = namespaces
        self._accounts = accounts
        ca_file = client.access.ca_file
        self._certificate = Path(ca_file).read_text() if ca_file else ""
        self.loop: ControlLoop[str] = ControlLoop("namespace-defaults", self.reconcile, workers=1)
        namespaces.add_handler(lambda old, new: self.loop.queue.add((new or old or {})["metadata"]["name"]))
        accounts.add_handler(lambda old, new: self.loop.queue.add((new or old or {})["metadata"]["namespace"]))

    async def reconcile(self, name: str) -> None:
        """Create what a living namespace lacks."""
        namespace = self._namespaces.get("", name)
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return
        if self._accounts.get(name, "default") is None:
            await self._ensure(SERVICE_ACCOUNTS, name, "default", {})
        await self._ensure(CONFIG_MAPS, name, ROOT_CERTIFICATE, {"data": {"ca.crt": self._certificate}})

    async def _ensure(self, resource: Resource, namespace: str, name: str, content: Obj) -> None:
        if await self._client.find(resource, namespace, name) is not None:
            return
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": namespace},
            **content,
        }
        try:
            await self._client.create(resource, obj)
        except ApiError as error:
            if not error.conflict:
                raise


class ClaimController:
    """Calls every PersistentVolumeClaim bound: in the sandbox a claim is a folder that is always there."""

    def __init__(self, client: ApiClient, claims: Informer) -> None:
        self._client = client
        self._claims = claims
        self.loop: ControlLoop[Key] = ControlLoop("claim", self.reconcile, workers=1)
        claims.add_handler(lambda old, new: self.loop.queue.add(key_of(new or old or {})))

    async def reconcile(self, key: Key) -> None:
        """Write the status of one claim."""
        claim = self._claims.get(*key)
        if claim is None:
            return
        finalizers = claim["metadata"].get("finalizers") or []
        if claim["metadata"].get("deletionTimestamp") and CLAIM_PROTECTION in finalizers:
            # A real API server sets this finalizer; a folder needs no protection.
            kept = [entry for entry in finalizers if entry != CLAIM_PROTECTION]
            await self._client.merge(CLAIMS, claim, {"metadata": {"finalizers": kept or None}})
            return
        if (claim.get("status") or {}).get("phase") == "Bound":
            return
        requests = (claim["spec"].get("resources") or {}).get("requests") or {}
        status = {"phase": "Bound", "accessModes": claim["spec"].get("accessModes"), "capacity": requests}
        self._claims.observe(await self._client.merge(CLAIMS, claim, {"status": status}, "status"))
