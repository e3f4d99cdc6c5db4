"""What the in-memory stand-in cannot prove: the client, the cache and apply against an API server."""

import asyncio
import time
from typing import Any

import pytest
from slipway.api.revisions import revision_of
from slipway.api.spec import ModelDeploymentSpec
from slipway.api.status import ModelDeploymentStatus, Role, VersionStatus, VersionWeight
from slipway.kube.apply import Applier, Operation, Owner
from slipway.kube.cache import Cache
from slipway.kube.client import Client
from slipway.kube.comparison import difference
from slipway.kube.failures import ConflictError, InvalidError, NotFoundError
from slipway.kube.kinds import (
    CHILDREN,
    CONFIG_MAP,
    DEPLOYMENT,
    MODEL_DEPLOYMENT,
    SERVICE,
    VIRTUAL_SERVICE,
    kind_of,
)
from slipway.kube.lease import Elector
from slipway.kube.metadata import OWN_SELECTOR, Key, foreign_manager, key_of, resource_version, uid_of
from slipway.kube.transport import ApiTransport, load_configuration
from slipway.resources import Identity, RenderOptions, desired

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

SPEC: dict[str, Any] = {
    "versions": [
        {
            "name": "v1",
            "uri": "pvc://models/v1",
            "runtime": {
                "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"nvidia.com/gpu": 1}},
                "env": [{"name": "A", "value": ""}, {"name": "B", "value": "1"}],
                "podTemplate": {"spec": {"hostNetwork": False, "nodeSelector": {"pool": "gpu"}}},
            },
        }
    ]
}


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data}


async def declared(client: Client, namespace: str, name: str = "m") -> dict[str, Any]:
    head = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.name}
    return await client.apply(
        MODEL_DEPLOYMENT, head | {"metadata": {"namespace": namespace, "name": name}, "spec": SPEC}
    )


def children_of(raw: dict[str, Any], weight: int = 100) -> tuple[dict[str, Any], ...]:
    key = key_of(raw)
    revision = revision_of(key.name, SPEC, "v1")
    entry = VersionStatus(
        name="v1",
        revision=revision.name,
        role=Role.STABLE,
        replicas=2,
        weight=VersionWeight(intended=weight),
        subset=True,
    )
    return desired(
        Identity(key.name, key.namespace, uid_of(raw)),
        ModelDeploymentSpec.from_wire(SPEC),
        ModelDeploymentStatus(versions=(entry,)),
        {revision.name: revision},
        RenderOptions("slipway-runtime:0.1.0"),
    )


async def filled(client: Client, namespace: str) -> Cache:
    cache = Cache()
    for kind in CHILDREN:
        selector = "" if kind == VIRTUAL_SERVICE else OWN_SELECTOR
        cache.replace(kind, await client.list(kind, namespace, label_selector=selector))
    return cache


async def test_life_of_an_object(cluster_client, namespace):
    created = await cluster_client.create(CONFIG_MAP, config_map(namespace, "a", x="1"))
    with pytest.raises(ConflictError) as taken:
        await cluster_client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert taken.value.already_exists
    patched = await cluster_client.patch(CONFIG_MAP, namespace, "a", {"data": {"y": "2", "x": None}})
    assert patched["data"] == {"y": "2"}
    with pytest.raises(ConflictError) as stale:
        await cluster_client.replace(CONFIG_MAP, created | {"data": {}})
    assert not stale.value.already_exists
    stale_version = {"metadata": {"resourceVersion": resource_version(created)}, "data": {"z": "3"}}
    with pytest.raises(ConflictError):
        await cluster_client.patch(CONFIG_MAP, namespace, "a", stale_version)
    with pytest.raises(ConflictError):
        await cluster_client.delete(CONFIG_MAP, namespace, "a", uid="another")
    await cluster_client.delete(CONFIG_MAP, namespace, "a", uid=uid_of(created))
    with pytest.raises(NotFoundError):
        await cluster_client.get(CONFIG_MAP, namespace, "a")


async def test_lists_in_pages(cluster_client, namespace):
    for number in range(5):
        await cluster_client.apply(CONFIG_MAP, config_map(namespace, f"c{number}"))
    listing = await cluster_client.list(CONFIG_MAP, namespace, page=2)
    names = [item["metadata"]["name"] for item in listing.items if item["metadata"]["name"].startswith("c")]
    assert names == [f"c{number}" for number in range(5)]
    assert all(kind_of(item) == CONFIG_MAP for item in listing.items)


async def test_a_wrong_object_is_refused_with_the_servers_words(cluster_client, namespace):
    with pytest.raises(InvalidError, match="versions"):
        await cluster_client.apply(
            MODEL_DEPLOYMENT,
            {
                "apiVersion": MODEL_DEPLOYMENT.api_version,
                "kind": MODEL_DEPLOYMENT.name,
                "metadata": {"namespace": namespace, "name": "bad"},
                "spec": {"versions": []},
            },
        )


async def test_the_status_subresource_leaves_the_spec_alone(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    body = {"metadata": {"resourceVersion": resource_version(raw)}, "status": {"phase": "Ready"}, "spec": {}}
    written = await cluster_client.patch(MODEL_DEPLOYMENT, namespace, "m", body, subresource="status")
    assert written["status"]["phase"] == "Ready"
    assert written["spec"] == raw["spec"]
    assert written["metadata"]["generation"] == raw["metadata"]["generation"]


async def test_what_the_server_makes_of_our_objects_is_no_difference(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    for obj in children_of(raw):
        stored = await cluster_client.apply(kind_of(obj), obj)
        assert difference(stored, obj) == "", obj["kind"]


async def test_a_second_apply_writes_nothing_even_with_a_fresh_cache(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    owner = Owner(key_of(raw), uid_of(raw))
    first = await Applier(cluster_client, Cache()).apply(owner, children_of(raw), time.time())
    assert {step.operation for step in first.done} == {Operation.CREATE}
    again = await Applier(cluster_client, await filled(cluster_client, namespace)).apply(
        owner, children_of(raw), time.time()
    )
    assert (again.done, again.drifts) == ([], [])


async def test_a_foreign_edit_is_named_and_repaired(cluster_client, kubeconfig, namespace):
    raw = await declared(cluster_client, namespace)
    owner = Owner(key_of(raw), uid_of(raw))
    await Applier(cluster_client, Cache()).apply(owner, children_of(raw), time.time())
    edit = {"spec": {"http": [{"name": "default", "route": [{"destination": {"host": "elsewhere"}}]}]}}
    transport = ApiTransport(await load_configuration({"KUBECONFIG": str(kubeconfig)}))
    async with Client(transport, field_manager="kubectl-edit") as somebody:
        await somebody.patch(VIRTUAL_SERVICE, namespace, "m", edit)
    cache = await filled(cluster_client, namespace)
    live = cache.get(VIRTUAL_SERVICE, Key(namespace, "m"))
    assert live is not None
    assert foreign_manager(live, "slipway") == "kubectl-edit"
    applied = await Applier(cluster_client, cache).apply(owner, children_of(raw), time.time())
    assert [(step.operation, step.kind) for step in applied.done] == [(Operation.REPAIR, VIRTUAL_SERVICE)]
    assert applied.drifts[0].manager == "kubectl-edit"
    wanted = next(obj for obj in children_of(raw) if obj["kind"] == "VirtualService")
    stored = await cluster_client.get(VIRTUAL_SERVICE, namespace, "m")
    assert stored["spec"]["http"] == wanted["spec"]["http"]


async def test_an_adopted_service_would_be_theft(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": namespace, "name": "m"},
        "spec": {"ports": [{"port": 1, "name": "theirs"}]},
    }
    await cluster_client.create(SERVICE, service)
    cache = await filled(cluster_client, namespace)
    applied = await Applier(cluster_client, cache).apply(Owner(key_of(raw), uid_of(raw)), children_of(raw), time.time())
    assert applied.conflict is not None
    assert applied.conflict.kind == SERVICE
    assert (await cluster_client.list(DEPLOYMENT, namespace)).items == ()


async def test_prune_leaves_what_is_not_ours(cluster_client, namespace):
    raw = await declared(cluster_client, namespace)
    owner = Owner(key_of(raw), uid_of(raw))
    wanted = children_of(raw)
    await Applier(cluster_client, Cache()).apply(owner, wanted, time.time())
    other = next(obj for obj in wanted if obj["kind"] == "Deployment")
    stranger = {**other, "metadata": {**other["metadata"], "name": "stranger", "ownerReferences": []}}
    await cluster_client.apply(DEPLOYMENT, stranger)
    cache = await filled(cluster_client, namespace)
    kept = [obj for obj in wanted if obj["kind"] == "Service"]
    applied = await Applier(cluster_client, cache).apply(owner, kept, time.time())
    assert {step.operation for step in applied.done} == {Operation.DELETE}
    assert [step.kind.name for step in applied.done][:2] == ["VirtualService", "DestinationRule"]
    names = {item["metadata"]["name"] for item in (await cluster_client.list(DEPLOYMENT, namespace)).items}
    assert "stranger" in names


STORED = {
    "a": ("1000u", "1m"),
    "b": ("0.5", "500m"),
    "c": ("1e3", "1e3"),
    "d": ("12E6", "12E6"),
    "e": ("0.5Gi", "512Mi"),
    "f": ("1.0000000001m", "1000001n"),
    "g": ("1e-999", "1e-9"),
    "h": ("9" * 300, "9" * 300),
    "i": ("9" * 30 + "Gi", str(2**63 - 1)),
    "j": ("12.500M", "12.500M"),
    "k": ("12.5M", "12500k"),
    "l": ("12000k", "12M"),
    "m": ("1E4", "10e3"),
    "n": ("+5", "+5"),
    "o": ("0.5Ki", "512"),
    "p": ("0.0001Ki", "102400u"),
    "q": ("9" * 30 + "k", "9" * 30 + "k"),
    "r": ("01", "01"),
}
"""Quantities as written and as an API server stores them."""


async def test_quantities_are_the_same_in_whatever_notation(cluster_client, namespace):
    labels = {"app": "odd"}
    volumes = [{"name": name, "emptyDir": {"sizeLimit": text}} for name, (text, _) in STORED.items()]
    pod = {"containers": [{"name": "c", "image": "none"}], "volumes": volumes}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    head = {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.name}
    wanted = head | {"metadata": {"namespace": namespace, "name": "odd"}, "spec": spec}
    answer = await cluster_client.create(DEPLOYMENT, wanted)
    found = answer["spec"]["template"]["spec"]["volumes"]
    assert {one["name"]: one["emptyDir"]["sizeLimit"] for one in found} == {
        name: text for name, (_, text) in STORED.items()
    }
    assert difference(answer, wanted) == ""


async def test_a_lease_is_taken_renewed_and_released(cluster_client, namespace):
    lease = Key(namespace, "leader")
    one = Elector(cluster_client, lease, "one", wall=time.time)
    two = Elector(cluster_client, lease, "two", wall=time.time)
    await one.acquire()
    waiting = asyncio.ensure_future(two.acquire())
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    await one.release()
    await asyncio.wait_for(waiting, 60.0)
    assert (one.leading, two.leading) == (False, True)
