"""Every way from one version to the next under load, experiments beside it, and definitions deleted by hand."""

import pytest

from e2e.sandbox.controllers.client import Resource
from tests.integration.bench import CONTROLLER_REVISIONS, failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
GPU = {"resources": {"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}}}


async def test_blue_green_moves_all_traffic_at_once_and_is_driven_with_kubectl(bench):
    rollout = {"rollout": {"strategy": "BlueGreen", "promotion": "Manual"}}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, **rollout))
    await bench.serving("m")
    async with bench.load("m") as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, two, serve="v2", **rollout))
        await bench.until("m", "preview", lambda s: (s.get("rollout") or {}).get("reason") == "AwaitingPromotion")
        assert {answer.version for answer in answers} == {"v1"}
        code, said = await bench.kubectl(
            *("patch", "mdep", "m", "--subresource=status", "--type=merge", "-p"),
            '{"status":{"action":{"id":"switch-1","verb":"Promote","by":"ada"}}}',
        )
        assert code == 0, said
        await bench.finished("m", "v2", "Promoted")
        await bench.serving("m", "v2")
    assert failures(answers) == []
    assert {look.weight("v2") for look in timeline.looks} <= {0, 100}


async def test_recreate_tells_of_the_outage_and_ends_with_the_new_version(bench):
    rollout = {"rollout": {"strategy": "Recreate"}}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, **rollout))
    await bench.serving("m")
    await bench.apply(bench.declare("m", one, two, serve="v2", **rollout))
    status = await bench.until(
        "m", "the outage", lambda s: "requests fail" in str((s.get("rollout") or {}).get("message"))
    )
    assert status["phase"] == "Progressing"
    await bench.finished("m", "v2", "Promoted")
    await bench.serving("m", "v2")
    assert await bench.infer("m") == (200, "v2")


async def test_pods_are_swapped_in_place_within_stables_gpus_and_no_request_is_lost(bench):
    chosen = {"rollout": {"maxSurgeGPUs": 0}, "runtime": GPU, "autoscaling": {"minReplicas": 2, "maxReplicas": 2}}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, **chosen))
    await bench.until("m", "two pods", lambda s: [entry["readyReplicas"] for entry in s.get("versions", ())] == [2])
    await bench.serving("m")
    async with bench.load("m") as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, two, serve="v2", **chosen))
        await bench.finished("m", "v2", "Promoted")
        await bench.until("m", "only v2", lambda s: [entry["name"] for entry in s["versions"]] == ["v2"])
    assert failures(answers) == []
    assert max(look.status.get("replicas", 0) for look in timeline.looks) <= 2
    await bench.until("m", "two pods again", lambda s: [entry["readyReplicas"] for entry in s["versions"]] == [2])


async def test_an_experiment_comes_and_goes_beside_a_rollout_without_a_failed_request(bench):
    match = [{"headers": {"x-group": {"exact": "beta"}}}]
    experiment = {"traffic": {"experiments": [{"version": "v3", "weight": 20, "match": match}]}}
    versions = [bench.version("v1"), bench.version("v2", "good-2"), bench.version("v3", "good-2")]
    await bench.apply(bench.declare("m", *versions, serve="v1"))
    await bench.serving("m")
    async with bench.load("m") as answers:
        await bench.apply(bench.declare("m", *versions, serve="v1", **experiment))
        await bench.until("m", "20 % for v3", lambda s: weights(s) == {"v1": 80, "v3": 20})
        await bench.apply(bench.declare("m", *versions, serve="v2", **experiment))
        await bench.finished("m", "v2", "Promoted")
        await bench.until("m", "20 % for v3 beside v2", lambda s: weights(s) == {"v2": 80, "v3": 20})
        assert await bench.infer("m", {"x-group": "beta"}) == (200, "v3")
        await bench.apply(bench.declare("m", *versions, serve="v2"))
        await bench.until("m", "v3 is gone", lambda s: [entry["name"] for entry in s["versions"]] == ["v2"])
    assert failures(answers) == []
    assert {answer.version for answer in answers} == {"v1", "v2", "v3"}


def weights(status):
    """Applied weights of the versions that have any."""
    return {entry["name"]: entry["weight"]["applied"] for entry in status["versions"] if entry["weight"]["applied"]}


async def test_a_deleted_definition_is_made_again_and_costs_no_pod(bench):
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, two, serve="v1"))
    (entry,) = (await bench.serving("m"))["versions"]
    before = await bench.get(DEPLOYMENTS, entry["revision"])
    await bench.delete(CONTROLLER_REVISIONS, entry["revision"])

    async def again():
        return await bench.get(CONTROLLER_REVISIONS, entry["revision"])

    found = await bench.eventually("the definition", again)
    assert found["data"]["version"]["name"] == "v1"
    after = await bench.get(DEPLOYMENTS, entry["revision"])
    assert (after["metadata"]["uid"], after["metadata"]["generation"]) == (
        before["metadata"]["uid"],
        before["metadata"]["generation"],
    )
