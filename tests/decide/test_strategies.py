"""Strategies, bounds on GPUs, experiments and lost definitions in whole decisions, scaling included."""

from typing import Any

import pytest
from slipway.api.status import Outcome, Phase, Role

from tests.decide.world import World, model_deployment, serving

GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def rollout(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model_deployment()["spec"]["rollout"]
    return plain | changes


def with_traffic(world: World, **traffic: Any) -> None:
    world.raw["spec"] = world.raw["spec"] | {"traffic": {"settle": "2s"} | traffic}


def test_blue_green_is_switched_at_once_and_keeps_the_old_version_warm() -> None:
    world = serving(rollout=rollout(strategy="BlueGreen"))
    world.serve("v2")
    seen = set()
    for _ in range(90):
        world.tick()
        seen.add(world.weight("v2"))
    assert seen == {0, 100}
    assert world.status.stable == "v2"


def test_recreate_never_has_pods_of_both_and_says_so() -> None:
    world = serving(rollout=rollout(strategy="Recreate"))
    world.serve("v2")
    messages = set()
    for _ in range(120):
        world.tick()
        counts = [len(world.pods.get(world.revision(name), [])) for name in ("v1", "v2")]
        assert min(counts) == 0
        messages.add(world.condition("Available"))
    assert ("False", "NothingServes") in messages
    assert world.status.stable == "v2"
    assert world.status.phase is Phase.READY


@pytest.mark.parametrize("strategy", ["Target", "Threshold"])
def test_pods_are_swapped_within_the_gpus_of_stable(strategy: str) -> None:
    scaling = {
        "minReplicas": 3,
        "maxReplicas": 6,
        "qps": {"target": 20, "upper": 30, "lower": 10},
        "strategy": strategy,
    }
    world = serving(rollout=rollout(maxSurgeGPUs=0), runtime=GPU, autoscaling=scaling)
    world.gpus = 1
    world.run(30)
    assert world.replicas("v1") == 3
    world.serve("v2")
    for _ in range(400):
        world.tick()
        assert sum(len(pods) for pods in world.pods.values()) <= 3
    assert world.status.stable == "v2"
    assert world.replicas("v2") == 3


def test_a_bound_that_cannot_be_met_is_a_condition() -> None:
    world = serving(rollout=rollout(maxSurgeGPUs=0), runtime=GPU, autoscaling={"minReplicas": 1, "maxReplicas": 1})
    world.serve("v2")
    world.run(20)
    assert world.condition("CapacityAvailable") == ("False", "SurgeDeadlock")
    assert world.weight("v1") == 100


def test_a_step_back_begins_new_evidence_and_a_relapse_is_rolled_back() -> None:
    checks = [{"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.02"}]
    analysis = {"interval": "10s", "onHarm": "StepDown", "checks": checks}
    steps = [{"weight": 10, "hold": "10s"}, {"weight": 50, "hold": "10m"}]
    world = serving(rollout=rollout(analysis=analysis, steps=steps))
    world.serve("v2")
    while world.weight("v2") < 50:
        world.tick()
    world.error_rates["v2"] = 0.3
    while world.weight("v2") == 50:
        world.tick()
    assert world.weight("v2") == 10
    assert world.status.rollout is not None
    assert world.status.rollout.outcome is None
    world.tick()
    assert {check.rollout for check in world.status.analysis} == {f"{world.status.rollout.id}.1"}
    world.run(200)
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK


def test_an_experiment_runs_beside_stable_and_beside_a_rollout() -> None:
    world = serving()
    with_traffic(world, experiments=[{"version": "v3", "weight": 20}])
    world.run(40)
    assert (world.weight("v1"), world.weight("v3")) == (80, 20)
    assert world.status.phase is Phase.READY
    assert world.condition("Ready")[0] == "True"
    entry = world.entry("v3")
    assert entry is not None
    assert entry.role is Role.EXPERIMENT
    world.serve("v2")
    world.run(260)
    assert (world.weight("v2"), world.weight("v3")) == (80, 20)
    with_traffic(world)
    world.run(40)
    assert [item.name for item in world.status.versions if item.role is Role.EXPERIMENT] == []
    assert world.weight("v2") == 100


def test_experiments_alone_come_to_rest() -> None:
    world = serving()
    with_traffic(world, experiments=[{"version": "v3", "weight": 20, "match": [{"uri": {"prefix": "/beta"}}]}])
    world.run(300, step=5)
    written = world.status
    for _ in range(60):
        world.tick(5)
        assert world.status == written
    assert world.last is not None
    assert world.last.requeue_after is None


def test_a_lost_definition_is_made_again_from_an_equal_version() -> None:
    world = serving()
    world.definitions.clear()
    decision = world.tick()
    assert world.revision("v1") in decision.revisions
    assert not decision.lost
    assert world.status.phase is Phase.READY


def test_a_revision_that_nothing_describes_is_kept_as_it_is_and_said_to_be_lost() -> None:
    world = serving()
    stable = world.revision("v1")
    versions = [entry for entry in world.raw["spec"]["versions"] if entry["name"] != "v1"]
    world.raw["spec"] = world.raw["spec"] | {"versions": versions, "serve": "v2"}
    world.definitions.clear()
    decision = world.reconcile(apply=False)
    assert decision.lost == {stable}
    assert stable not in decision.revisions
    entry = world.status.revision(stable)
    assert entry is not None
    assert entry.reason == "RevisionLost"
    assert entry.weight.intended == 100


def test_a_lost_revision_can_be_left_behind() -> None:
    world = serving()
    stable = world.revision("v1")
    versions = [entry for entry in world.raw["spec"]["versions"] if entry["name"] != "v1"]
    world.raw["spec"] = world.raw["spec"] | {"versions": versions, "serve": "v2"}
    del world.definitions[stable]
    spared = 0
    for _ in range(300):
        decision = world.tick()
        spared += stable in decision.lost
        entry = world.status.revision(stable)
        assert entry is None or stable in decision.lost or entry.replicas == 0
    assert spared > 0
    assert {entry.name for entry in world.status.versions} == {"v2"}
    assert world.status.phase is Phase.READY


def test_requests_that_show_other_shares_than_the_router_are_told_after_a_while() -> None:
    world = serving()
    world.serve("v2")
    while world.weight("v2") < 10:
        world.tick()
    world.act("Pause")
    world.run(30)
    assert world.condition("TrafficApplied") == ("True", "Applied")
    world.shown = {world.revision("v1"): 50, world.revision("v2"): 50}
    world.run(110)
    assert world.condition("TrafficApplied") == ("False", "ObservedDiffers")
    world.shown = {}
    world.run(5)
    assert world.condition("TrafficApplied") == ("True", "Applied")


def test_a_router_that_does_not_follow_is_told_once_settling_takes_too_long() -> None:
    world = serving()
    world.frozen = True
    world.serve("v2")
    while world.weight("v2") < 10:
        world.tick()
    world.tick(3)
    assert world.condition("TrafficApplied") == ("Unknown", "WaitingForMesh")
    world.run(15)
    assert world.condition("TrafficApplied") == ("False", "WaitingForMesh")


def test_a_return_that_takes_too_long_is_stalled_and_goes_on() -> None:
    world = serving()
    world.serve("v2")
    while world.weight("v2") < 10:
        world.tick()
    world.frozen = True
    world.act("Abort")
    world.run(140, step=2)
    assert world.status.phase is Phase.ROLLING_BACK
    assert world.condition("Stalled")[0] == "True"
    world.frozen = False
    world.run(20)
    assert world.status.history[-1].outcome is Outcome.ABORTED
    assert world.weight("v1") == 100
