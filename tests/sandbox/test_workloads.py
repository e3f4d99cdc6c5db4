"""Deployments, ReplicaSets, Services and what hangs on them, on the sandbox."""

import pytest

from e2e.sandbox.controllers.client import (
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    ApiError,
    Resource,
)
from e2e.sandbox.controllers.pods import is_ready
from tests.sandbox.bench import condition, controller_of, echo, eventually, has_controller, script_pod
from tests.sandbox.conftest import GPUS

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.integration]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


async def test_a_deployment_gets_its_replica_set_and_its_pods(bench):
    await bench.deploy(echo("web", replicas=3))
    deployment = await bench.rolled_out("web")
    (replica_set,) = await bench.replica_sets("web")
    pods = await bench.ready_pods("web", 3)
    status = deployment["status"]
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 3, 3)
    assert "unavailableReplicas" not in status
    assert condition(deployment, "Available")["reason"] == "MinimumReplicasAvailable"
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    assert controller_of(replica_set)["uid"] == deployment["metadata"]["uid"]
    assert {controller_of(pod)["uid"] for pod in pods} == {replica_set["metadata"]["uid"]}
    name_hash = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{name_hash}"
    assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in pods} == {name_hash}
    assert len({pod["status"]["podIP"] for pod in pods}) == 3


async def test_scaling_keeps_the_older_pods_and_prefers_the_cheap_to_go(bench):
    await bench.deploy(echo("web", replicas=3))
    await bench.rolled_out("web")
    pods = await bench.pods("web")
    cheap = pods[1]["metadata"]["name"]
    annotations = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}
    await bench.patch(PODS, cheap, {"metadata": annotations})
    await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    left = await bench.ready_pods("web", 2)
    assert cheap not in {pod["metadata"]["name"] for pod in left}
    await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
    await bench.ready_pods("web", 0)
    await bench.rolled_out("web")


async def test_a_rolling_update_makes_a_new_replica_set_and_a_rollback_reuses_the_old(bench):
    await bench.deploy(echo("web", replicas=2))
    await bench.rolled_out("web")
    (first,) = await bench.replica_sets("web")
    await bench.change_args("web", "--version", "v2")
    deployment = await bench.rolled_out("web")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    sizes = {item["metadata"]["name"]: item["spec"]["replicas"] for item in await bench.replica_sets("web")}
    assert sizes.pop(first["metadata"]["name"]) == 0
    assert list(sizes.values()) == [2]
    await bench.change_args("web", "--version", "v1")
    deployment = await bench.rolled_out("web")
    assert deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    assert len(await bench.replica_sets("web")) == 2
    assert (await bench.get(REPLICA_SETS, first["metadata"]["name"]))["spec"]["replicas"] == 2


async def test_recreate_ends_all_old_pods_before_the_first_new_one(bench):
    deployment = echo("web", replicas=2)
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    await bench.deploy(deployment)
    await bench.rolled_out("web")
    before = {pod["metadata"]["uid"] for pod in await bench.pods("web")}
    await bench.change_args("web", "--version", "v2")

    async def replaced():
        now_there = {pod["metadata"]["uid"] for pod in await bench.pods("web")}
        assert not (now_there & before and now_there - before), "old and new pods together"
        return now_there and not now_there & before

    await eventually(replaced)
    await bench.rolled_out("web")


async def test_a_broken_update_keeps_the_old_pods_and_runs_into_its_deadline(bench):
    deployment = echo("web", replicas=2)
    deployment["spec"]["progressDeadlineSeconds"] = 2
    await bench.deploy(deployment)
    await bench.rolled_out("web")
    await bench.change_args("web", "--fail", "no such model")

    async def timed_out():
        found = await bench.get(DEPLOYMENTS, "web")
        return condition(found, "Progressing")["reason"] == "ProgressDeadlineExceeded" and found

    found = await eventually(timed_out)
    assert condition(found, "Progressing")["status"] == "False"
    assert condition(found, "Available")["status"] == "True"
    assert found["status"]["availableReplicas"] == 2
    assert found["status"]["unavailableReplicas"] == 1
    await bench.change_args("web", "--version", "v3")
    await bench.rolled_out("web")


async def test_min_ready_seconds_delay_availability(bench):
    deployment = echo("web")
    deployment["spec"]["minReadySeconds"] = 2
    await bench.deploy(deployment)

    async def ready_but_not_available():
        status = (await bench.get(DEPLOYMENTS, "web"))["status"]
        return status.get("readyReplicas") == 1 and "availableReplicas" not in status

    await eventually(ready_but_not_available)
    await bench.rolled_out("web")


async def test_a_paused_deployment_scales_but_does_not_roll(bench):
    await bench.deploy(echo("web", replicas=1))
    await bench.rolled_out("web")
    await bench.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}})
    await bench.change_args("web", "--version", "v2")
    await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    await bench.ready_pods("web", 2)
    assert len(await bench.replica_sets("web")) == 1
    await bench.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}})
    await bench.rolled_out("web")
    assert len(await bench.replica_sets("web")) == 2


async def test_an_orphan_is_adopted_and_a_relabelled_pod_is_released(bench):
    await bench.deploy(echo("web", replicas=1))
    await bench.rolled_out("web")
    (pod,) = await bench.pods("web")
    await bench.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}})
    await bench.ready_pods("web", 1)

    async def released():
        return not has_controller(await bench.get(PODS, pod["metadata"]["name"]))

    await eventually(released)
    await bench.patch(PODS, pod["metadata"]["name"], {"metadata": {"labels": {"app": "web"}}})

    async def one_of_them():
        found = await bench.pods("web")
        return len(found) == 1 and has_controller(found[0])

    await eventually(one_of_them)


async def test_endpoints_follow_readiness_at_once(bench):
    await bench.deploy(echo("web", replicas=2))
    await bench.expose("web")
    pods = await bench.ready_pods("web", 2)
    addresses = {pod["status"]["podIP"] for pod in pods}

    async def ready():
        return await bench.ready_addresses("web")

    async def all_ready():
        return await ready() == addresses

    await eventually(all_ready)
    for endpoint in await bench.endpoints("web"):
        assert endpoint["targetRef"]["kind"] == "Pod"
        assert endpoint["nodeName"] == "sandbox-node-0"
    await call(bench, pods[0]["status"]["podIP"], "/unready")

    async def one_ready():
        return await ready() == addresses - {pods[0]["status"]["podIP"]}

    await eventually(one_ready)
    await call(bench, pods[0]["status"]["podIP"], "/ready")
    await eventually(all_ready)


async def test_a_pod_that_ends_leaves_the_endpoints_first_and_finishes_its_work(bench):
    await bench.deploy(echo("web", args=["--drain", "2"]))
    await bench.expose("web")
    (pod,) = await bench.ready_pods("web", 1)

    async def ready():
        return await bench.ready_addresses("web")

    await eventually(ready)
    await bench.client.delete(PODS, pod)

    async def leaving():
        entry = next(e for e in await bench.endpoints("web") if e["targetRef"]["uid"] == pod["metadata"]["uid"])
        return entry["conditions"] == {"ready": False, "serving": True, "terminating": True}

    await eventually(leaving)
    assert await call(bench, pod["status"]["podIP"], "/slow?seconds=0.5") == 200

    async def gone():
        return await bench.client.find(PODS, bench.namespace, pod["metadata"]["name"]) is None

    await eventually(gone)


async def test_gpus_run_out_and_come_back(bench):
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    await bench.deploy(echo("web", replicas=GPUS + 1, resources=gpu))

    async def one_waits():
        pods = await bench.pods("web")
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
        return sum(is_ready(pod) for pod in pods) == GPUS and len(waiting) == 1 and waiting[0]

    pod = await eventually(one_waits)
    scheduled = condition(pod, "PodScheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    other = next(item for item in await bench.pods("web") if item["spec"].get("nodeName"))
    await bench.client.delete(PODS, other, grace=0)

    async def scheduled_now():
        return (await bench.get(PODS, pod["metadata"]["name"]))["spec"].get("nodeName")

    await eventually(scheduled_now)


async def test_deleting_in_the_background_takes_the_dependents_along(bench):
    await bench.deploy(echo("web", replicas=2))
    await bench.expose("web")
    await bench.ready_pods("web", 2)
    await bench.client.delete(DEPLOYMENTS, await bench.get(DEPLOYMENTS, "web"), policy="Background")
    await bench.client.delete(SERVICES, await bench.get(SERVICES, "web"), policy="Background")
    await bench.ready_pods("web", 0)

    async def nothing_left():
        return not await bench.replica_sets("web") and not await bench.endpoints("web")

    await eventually(nothing_left)


async def test_deleting_in_the_foreground_keeps_the_owner_until_the_dependents_are_gone(bench):
    await bench.deploy(echo("web", replicas=1, args=["--drain", "1"]))
    await bench.ready_pods("web", 1)
    await bench.client.delete(DEPLOYMENTS, await bench.get(DEPLOYMENTS, "web"), policy="Foreground")

    async def gone():
        owner = await bench.client.find(DEPLOYMENTS, bench.namespace, "web")
        assert owner is not None or not await bench.pods("web"), "the owner went first"
        return owner is None

    await eventually(gone)
    assert not await bench.replica_sets("web")


async def test_orphaned_dependents_stay(bench):
    await bench.deploy(echo("web"))
    await bench.ready_pods("web", 1)
    await bench.client.delete(DEPLOYMENTS, await bench.get(DEPLOYMENTS, "web"), policy="Orphan")

    async def orphaned():
        sets = await bench.replica_sets("web")
        return await bench.client.find(DEPLOYMENTS, bench.namespace, "web") is None and not has_controller(sets[0])

    await eventually(orphaned)
    await bench.ready_pods("web", 1)


async def test_an_object_whose_owner_never_was_is_collected(bench):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "ghost", "uid": "0-0-0-0"}
    owned = {"metadata": {"name": "lost", "ownerReferences": [reference]}}
    await bench.create(CONFIG_MAPS, owned)

    async def collected():
        return await bench.client.find(CONFIG_MAPS, bench.namespace, "lost") is None

    await eventually(collected)


async def test_a_namespace_goes_with_everything_in_it(bench):
    name = f"{bench.namespace}-b"
    await bench.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    deployment = echo("web")
    deployment["metadata"]["namespace"] = name
    await bench.client.create(DEPLOYMENTS, deployment)

    async def account():
        return await bench.client.request("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")

    await eventually(account)
    await bench.client.request("DELETE", f"/api/v1/namespaces/{name}")

    async def gone():
        try:
            await bench.client.request("GET", f"/api/v1/namespaces/{name}")
        except ApiError as error:
            return error.not_found
        return False

    await eventually(gone)


async def test_a_disruption_budget_says_how_many_may_go(bench):
    budget = {
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    await bench.deploy(echo("web", replicas=2))
    await bench.create(DISRUPTION_BUDGETS, budget)

    async def one():
        found = await bench.get(DISRUPTION_BUDGETS, "web")
        status = found["status"]
        assert status["disruptionsAllowed"] == 1
        assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"]) == (2, 1, 2)
        return condition(found, "DisruptionAllowed")["reason"] == "SufficientPods"

    await eventually(one)


async def test_a_finished_pod_is_no_endpoint_and_uses_no_gpu(bench):
    gpu = {"resources": {"limits": {"nvidia.com/gpu": str(GPUS)}}}
    await bench.create(PODS, script_pod("first", "exit 0", container=gpu))
    await bench.phase("first", "Succeeded")
    await bench.create(PODS, script_pod("second", "exit 0", container=gpu))
    await bench.phase("second", "Succeeded")


async def call(bench, address, path):
    """GET a path of a pod; returns the status code."""
    import aiohttp

    async with aiohttp.ClientSession() as session, session.get(f"http://{address}:8080{path}") as response:
        await response.read()
        return response.status
