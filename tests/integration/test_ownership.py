"""What is ours is kept as wanted, what is not ours is left alone, and at rest nothing is written."""

import asyncio

import pytest
from slipway.api.revisions import revision_of

from e2e.sandbox.controllers.client import DEPLOYMENTS, EVENTS, MERGE_PATCH, PODS, SERVICES
from tests.integration.bench import (
    CONTROLLER_REVISIONS,
    DESTINATION_RULES,
    MODEL_DEPLOYMENTS,
    VIRTUAL_SERVICES,
    condition,
    failures,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

CHILDREN = (DEPLOYMENTS, SERVICES, VIRTUAL_SERVICES, DESTINATION_RULES, CONTROLLER_REVISIONS)
REPAIR_SECONDS = 60.0
"""By a watch a repair takes a moment, on a slow machine some; the next complete look is five minutes away."""
REST_SECONDS = 20.0


async def test_foreign_edits_are_repaired_within_seconds(bench):
    await bench.apply(bench.declare("m"))
    await bench.serving("m")
    wanted = (await bench.get(VIRTUAL_SERVICES, "m"))["spec"]
    path = VIRTUAL_SERVICES.path(bench.namespace, "m")
    elsewhere = {"spec": {"http": [{"name": "default", "route": [{"destination": {"host": "elsewhere"}}]}]}}
    await bench.client.request("PATCH", path, elsewhere, params={"fieldManager": "vim"}, content_type=MERGE_PATCH)

    async def repaired():
        return (await bench.get(VIRTUAL_SERVICES, "m"))["spec"] == wanted

    await bench.eventually("the VirtualService is as before", repaired, REPAIR_SECONDS)

    async def told():
        return [event for event in await bench.items(EVENTS) if event["reason"] == "DriftRepaired"]

    (event,) = await bench.eventually("an event", told)
    assert "VirtualService m was changed by field manager 'vim' at spec.http" in event["message"]

    before = (await bench.get(VIRTUAL_SERVICES, "m"))["metadata"]["uid"]
    await bench.delete(VIRTUAL_SERVICES, "m")

    async def back():
        found = await bench.get(VIRTUAL_SERVICES, "m")
        return found["metadata"]["uid"] != before and found["spec"] == wanted

    await bench.eventually("the VirtualService is back", back, REPAIR_SECONDS)
    await bench.serving("m")


async def test_a_pause_and_addresses_of_pods_that_are_not_ready_are_taken_back(bench):
    """Nothing else of the object would show them: weights and replicas are as they were."""
    await bench.apply(bench.declare("m"))
    await bench.serving("m")
    (name,) = [item["metadata"]["name"] for item in await bench.items(DEPLOYMENTS)]
    code, output = await bench.kubectl("rollout", "pause", f"deployment/{name}")
    assert code == 0, output
    theirs = {"spec": {"publishNotReadyAddresses": True}}
    path = SERVICES.path(bench.namespace, "m")
    await bench.client.request("PATCH", path, theirs, params={"fieldManager": "vim"}, content_type=MERGE_PATCH)

    async def repaired():
        paused = (await bench.get(DEPLOYMENTS, name))["spec"].get("paused", False)
        return not paused and not (await bench.get(SERVICES, "m"))["spec"].get("publishNotReadyAddresses", False)

    await bench.eventually("both are as before", repaired, REPAIR_SECONDS)

    async def told():
        events = [event["message"] for event in await bench.items(EVENTS) if event["reason"] == "DriftRepaired"]
        return {
            message
            for message in events
            if message.endswith(("at spec.paused", "by field manager 'vim' at spec.publishNotReadyAddresses"))
        }

    async def both_told():
        return len(await told()) == 2

    await bench.eventually("two events", both_told)
    await bench.serving("m")


async def test_a_deployment_of_our_name_that_is_not_ours_is_left_alone(bench):
    obj = bench.declare("m", bench.version("v1"), bench.version("v2", "good-2"), serve="v1")
    await bench.apply(obj)
    await bench.serving("m")
    name = revision_of("m", obj["spec"], "v2").name
    foreign = await bench.client.create(DEPLOYMENTS, deployment(name, bench.namespace))
    async with bench.load("m") as answers:
        await bench.patch("m", {"serve": "v2"})
        status = await bench.until("m", "the conflict", lambda s: condition(s, "Stalled")["reason"] == "Conflict")
        assert condition(status, "Stalled")["message"] == (
            f"Deployment {name} exists and was not made by Slipway; it is left untouched: "
            "delete it, or rename one of the two"
        )
        assert (status["phase"], status["stable"]) == ("Stalled", "v1")
        found = await bench.get(DEPLOYMENTS, name)
        assert found["spec"] == foreign["spec"]
        assert found["metadata"].get("labels") == foreign["metadata"].get("labels")
        assert "ownerReferences" not in found["metadata"]
        await bench.patch("m", {"serve": "v1"})
        await bench.serving("m", "v1")
    assert failures(answers) == []
    assert {answer.version for answer in answers} == {"v1"}
    assert (await bench.get(DEPLOYMENTS, name))["metadata"]["uid"] == foreign["metadata"]["uid"]


async def test_children_left_by_a_deletion_that_orphans_are_adopted_and_serve_all_the_while(bench):
    obj = bench.declare("m", autoscaling={"minReplicas": 2, "maxReplicas": 2})
    await bench.apply(obj)
    await bench.serving("m")
    pods = {pod["metadata"]["uid"] for pod in await bench.items(PODS)}
    before = {kind: await bench.items(kind) for kind in CHILDREN}
    async with bench.load("m") as answers:
        await bench.client.delete(MODEL_DEPLOYMENTS, await bench.get(MODEL_DEPLOYMENTS, "m"), policy="Orphan")

        async def left():
            return not await bench.items(MODEL_DEPLOYMENTS) and not await owning(bench)

        await bench.eventually("the ModelDeployment is gone, and its children are nobody's", left)
        await bench.apply(obj)
        async with bench.timeline("m") as timeline:
            status = await bench.serving("m")
    assert failures(answers) == []
    assert {answer.version for answer in answers} == {"v1"}
    assert status.get("rollout") is None
    assert {look.phase for look in timeline.looks} <= {"", "Ready"}
    assert {pod["metadata"]["uid"] for pod in await bench.items(PODS)} == pods
    (new,) = await bench.items(MODEL_DEPLOYMENTS)

    async def adopted():
        found = await owning(bench)
        return set(found) == {new["metadata"]["uid"]} and len(found) == sum(len(items) for items in before.values())

    await bench.eventually("all are the new one's", adopted)
    for kind, items in before.items():
        now = {item["metadata"]["uid"]: item for item in await bench.items(kind)}
        assert {item["metadata"]["uid"]: item["spec"] for item in items if "spec" in item} == {
            uid: item["spec"] for uid, item in now.items() if "spec" in item
        }


async def test_what_a_backup_tool_brings_back_is_adopted_by_an_operator_that_comes_later(bench, operator):
    """As Velero does: everything anew, without owner references and status; the rollout stood half-way."""
    obj = bench.declare("m", bench.version("v1"), bench.version("v2", "good-2"), serve="v1")
    await bench.apply(obj)
    await bench.serving("m")
    half = {"serve": "v2", "rollout": {"steps": [{"weight": 50, "pause": {}}]}}
    await bench.patch("m", half)
    await bench.until("m", "a pause half-way", lambda s: s["phase"] == "Paused" and s["weight"] == 50)
    saved = [restorable(kind, item) for kind in CHILDREN for item in await bench.items(kind)]
    await operator.stop()
    await bench.delete(MODEL_DEPLOYMENTS, "m")

    async def nothing_left():
        return not [item for kind in (PODS, *CHILDREN) for item in await bench.items(kind)]

    await bench.eventually("the garbage collector has taken everything", nothing_left)
    created = [(kind, await bench.client.create(kind, item)) for kind, item in saved]
    await bench.apply(
        {**obj, "spec": obj["spec"] | {"serve": "v2", "rollout": obj["spec"]["rollout"] | half["rollout"]}}
    )
    await operator.start()
    status = await bench.until("m", "the rollout where it was", lambda s: s.get("phase") == "Paused")
    assert (status["stable"], status["candidate"], status["weight"]) == ("v1", "v2", 50)
    (new,) = await bench.items(MODEL_DEPLOYMENTS)
    for kind, item in created:
        found = await bench.get(kind, item["metadata"]["name"])
        assert found["metadata"]["uid"] == item["metadata"]["uid"]
        assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [new["metadata"]["uid"]]
    await bench.act("m", "Promote")
    await bench.serving("m", "v2")


def restorable(kind, item):
    """An object as a backup tool creates it."""
    kept = {name: item["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
    rest = {name: value for name, value in item.items() if name not in ("metadata", "status", "apiVersion", "kind")}
    if kind is SERVICES:
        rest["spec"] = {name: value for name, value in rest["spec"].items() if not name.startswith("clusterIP")}
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept, **rest}


async def owning(bench):
    """Uids of those to whom children belong, one for each reference."""
    found = [item["metadata"].get("ownerReferences") or () for kind in CHILDREN for item in await bench.items(kind)]
    return [reference["uid"] for references in found for reference in references]


def deployment(name, namespace):
    """Somebody else's, without pods."""
    labels = {"app": "other"}
    container = {"name": "server", "image": "sandbox-echo"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def test_another_default_image_restarts_no_pod_and_rest_is_silence(bench, operator):
    """An upgraded operator with another default for the image keeps what runs; then nothing is written for a while."""
    await bench.apply(bench.declare("m"))
    await bench.serving("m")
    pods = {pod["metadata"]["uid"] for pod in await bench.items(PODS)}
    (before,) = await bench.items(DEPLOYMENTS)
    await operator.restart("--runtime-image", "slipway-runtime:9.9.9")
    await bench.patch("m", {"rollout": {"keepPrevious": "3s"}})
    await bench.until("m", "the new operator has looked", lambda s: s["observedGeneration"] == 2)
    await bench.serving("m")
    (found,) = await bench.items(DEPLOYMENTS)
    assert found["spec"]["template"] == before["spec"]["template"]
    assert {pod["metadata"]["uid"] for pod in await bench.items(PODS)} == pods
    await operator.restart()

    async def alone():
        everywhere = await bench.client.list_all(MODEL_DEPLOYMENTS)
        return len(everywhere["items"]) == 1

    await bench.eventually("the objects of other tests are gone", alone)
    await bench.patch("m", {"rollout": {"keepPrevious": "4s"}})
    await bench.until("m", "the operator is back", lambda s: s["observedGeneration"] == 3)
    settled = await settled_writes(operator)
    objects = [await bench.items(kind) for kind in (MODEL_DEPLOYMENTS, DEPLOYMENTS, VIRTUAL_SERVICES)]
    await asyncio.sleep(REST_SECONDS)
    assert await operator.writes() == settled
    assert [await bench.items(kind) for kind in (MODEL_DEPLOYMENTS, DEPLOYMENTS, VIRTUAL_SERVICES)] == objects


async def settled_writes(operator, quiet=5.0):
    """The number of writes once there was none for some seconds: what a start has to say is said then."""
    async with asyncio.timeout(180):
        while True:
            before = await operator.writes()
            await asyncio.sleep(quiet)
            if await operator.writes() == before:
                return before
