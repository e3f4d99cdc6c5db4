"""A cluster in virtual time in which the operator has the chart's rights and none beside them.

Simulated: API server (its RBAC included), nodes, requests and watches; see e2e/faults. Admission plugin
OwnerReferencesPermissionEnforcement is imitated here.
"""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
from slipway.api.samples import MetricsView
from slipway.engine.engine import Settings
from slipway.kube.kinds import EVENT, Kind
from slipway.kube.metadata import Key
from slipway.kube.transport import Answer, Call

from e2e.faults.api import Api, Connection, Network
from e2e.faults.demand import Scraped
from e2e.faults.operators import Operator
from e2e.faults.world import Wall, World
from e2e.sandbox.apiserver.access import Attributes
from tests.rights.roles import ACCOUNT, Recorder, Right, in_namespace, optional_apis, path_of

TOKEN = "operator"
PLUGIN_SAYS = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"


def keda() -> dict[str, Any]:
    """As much of KEDA's definition as is looked at."""
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": open_object}}
    names = {"plural": "scaledobjects", "singular": "scaledobject", "kind": "ScaledObject", "listKind": "ScaledObjects"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "scaledobjects.keda.sh"},
        "spec": {"group": "keda.sh", "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def api_server(wall: Wall) -> tuple[Api, Recorder]:
    """An API server with all optional APIs that knows the operator's account."""
    api = Api(wall, {TOKEN: ACCOUNT})
    await api.start()
    await api.install(keda())
    recorder = Recorder(api.cluster.store)
    api.cluster.authorizer = recorder
    return api, recorder


@dataclass
class Admitted(Connection):
    """A connection to a server with OwnerReferencesPermissionEnforcement on, as OpenShift's is (simulated)."""

    async def send(self, call: Call) -> Answer:
        """Refuse what that plugin refuses: to hold up the deletion of what one may not put finalizers on."""
        metadata = (call.body or {}).get("metadata") or {}
        for owner in metadata.get("ownerReferences") or ():
            group = owner["apiVersion"].partition("/")[0]
            wanted = Attributes("update", group, "modeldeployments", "finalizers", metadata["namespace"], owner["name"])
            if owner.get("blockOwnerDeletion") and not self.api.cluster.authorizer.decide(ACCOUNT, wanted).allowed:
                return _forbidden(PLUGIN_SAYS)
        return await Connection.send(self, call)


def _forbidden(message: str) -> Answer:
    status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}
    return Answer(403, {}, orjson.dumps(status))


@dataclass
class Loads:
    """Prometheus that also knows how many requests each pod has at the moment."""

    world: World

    async def snapshot(self, now: float) -> Scraped:
        """As the world's demand has it, with ever more load on pods of higher numbers."""
        scraped = await self.world.demand.snapshot(now)
        view: MetricsView = scraped.metrics
        revisions = {
            name: dataclasses.replace(
                one, pod_loads={pod: 1.0 + 2 * int(pod.rpartition("-")[2]) for pod in one.reporting_pods}
            )
            for name, one in view.revisions.items()
        }
        return Scraped(dataclasses.replace(view, revisions=revisions))

    def want(self, namespace: str, name: str, queries: Any) -> None:
        """No expressions of users are known here."""


@contextlib.asynccontextmanager
async def staged(api: Api, wall: Wall, lacking: Right | None) -> AsyncIterator[World]:
    """A namespace with one operator whose roles lack a right."""
    async with World.of(api, wall) as world:
        for obj in in_namespace(world.namespace, lacking):
            await api.ask("PATCH", path_of(obj), obj, content_type="application/apply-patch+yaml")
        begin(world)
        yield world


def begin(world: World) -> Operator:
    """Start an operator."""
    settings = Settings(
        namespaces=(world.namespace,),
        apis=optional_apis(),
        lease=Key(world.namespace, "slipway"),
        http_host="127.0.0.1",
        http_port=0,
        identity=f"op-{len(world.operators)}",
    )

    def connect(api: Api, who: str, network: Network) -> Connection:
        return Admitted(api, who, network, token=TOKEN)

    made = Operator(world.api, settings, world.wall, Loads(world), connect=connect)
    world.operators.append(made)
    made.start()
    return made


def events(world: World) -> list[dict[str, Any]]:
    """All Events of the namespace."""
    return world.api.objects(EVENT, world.namespace)


def told(world: World, reason: str, text: str) -> bool:
    """Whether an Event of that reason has the text in it."""
    return any(event["reason"] == reason and text in event["message"] for event in events(world))


def names(world: World, kind: Kind) -> set[str]:
    """Names of the objects of a kind."""
    return {obj["metadata"]["name"] for obj in world.api.objects(kind, world.namespace)}


def shown(obj: Any) -> str:
    """For failures."""
    return json.dumps(obj, indent=1, default=str)
