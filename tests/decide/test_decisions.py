"""Whole decisions: what a user sees of evidence, metrics faults and bad objects."""

from typing import Any

import pytest
from slipway.api.status import Phase

from tests.decide.world import World, model_deployment, serving


def test_the_first_version_becomes_ready_and_available() -> None:
    world = serving()
    assert world.status.phase is Phase.READY
    assert world.condition("Ready")[0] == "True"
    assert world.condition("Reconciling")[0] == "False"
    assert world.condition("Stalled")[0] == "False"
    assert world.condition("Available")[0] == "True"
    assert world.status.url == "http://m.n.svc.cluster.local"


def test_load_scales_stable_to_what_it_needs() -> None:
    world = serving()
    assert world.replicas("v1") == 2
    assert world.status.scaling[-1].to == 2


def test_a_healthy_candidate_is_promoted_on_evidence() -> None:
    world = serving()
    world.serve("v2")
    world.run(240)
    assert world.status.stable == "v2"
    assert world.status.phase is Phase.READY
    assert world.status.history[-1].outcome.value == "Promoted"


def test_a_bad_candidate_is_rolled_back_on_evidence() -> None:
    world = serving()
    world.error_rates["v2"] = 0.3
    world.serve("v2")
    world.run(200)
    assert world.status.history[-1].outcome.value == "RolledBack"
    assert world.status.phase is Phase.STALLED
    assert world.condition("Stalled")[0] == "True"
    assert world.condition("Available")[0] == "True"
    assert world.weight("v1") == 100


@pytest.mark.parametrize("fault", ["down", "silent", "nan"])
def test_a_metrics_fault_in_the_middle_holds_and_says_why_and_the_end_is_the_same(fault: str) -> None:
    world = serving()
    world.serve("v2")
    while world.weight("v2") == 0:
        world.tick()
    world.metrics_fault = fault
    before = world.weight("v2")
    replicas = world.replicas("v1")
    for _ in range(120):
        world.tick()
        if fault in ("down", "silent"):
            assert world.weight("v2") == before
        assert world.replicas("v1") >= replicas
    if fault in ("down", "silent"):
        assert world.status.rollout is not None
        assert world.status.rollout.reason in ("MetricsUnavailable", "MetricsStale", "NoTraffic", "CollectingEvidence")
    world.metrics_fault = ""
    world.run(240)
    assert world.status.stable == "v2"


def test_an_unchanged_world_writes_nothing() -> None:
    world = serving()
    world.run(400, step=5)
    written = world.status
    for _ in range(60):
        world.tick(5)
        assert world.status == written


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"serve": ""}, "InvalidSpec", "spec.serve"),
        ({"serve": "v9"}, "InvalidSpec", "spec.serve"),
        ({"rollout": {"steps": [{"weight": 50}, {"weight": 10}]}}, "InvalidSpec", "spec.rollout.steps"),
        ({"autoscaling": {"minReplicas": 9, "maxReplicas": 3}}, "InvalidSpec", "minReplicas"),
        ({"traffic": {"provider": "none"}}, "InvalidSpec", "spec.rollout.strategy"),
        ({"traffic": {"experiments": [{"version": "v1"}]}}, "InvalidSpec", "spec.traffic.experiments[0].version"),
        (
            {"traffic": {"experiments": [{"version": "v2", "weight": 60}, {"version": "v3", "weight": 40}]}},
            "InvalidSpec",
            "add up to 100",
        ),
    ],
)
def test_a_bad_spec_changes_nothing_and_names_the_field(spec: dict[str, Any], reason: str, words: str) -> None:
    world = serving()
    running = {name: len(pods) for name, pods in world.pods.items()}
    world.raw = model_deployment(**spec)
    world.raw["metadata"]["generation"] = 7
    decision = world.reconcile()
    assert not decision.apply
    assert world.condition("Stalled") == ("True", reason)
    message = next(item.message for item in world.status.conditions if item.type.value == "Stalled")
    assert words in message
    assert world.status.observed_generation == 7
    assert world.weight("v1") == 100
    assert {name: len(pods) for name, pods in world.pods.items()} == running


def test_suspend_keeps_everything_and_says_so() -> None:
    world = serving()
    world.raw["spec"] = world.raw["spec"] | {"suspend": True, "serve": "v2"}
    decision = world.reconcile()
    assert not decision.apply
    assert world.status.phase is Phase.SUSPENDED
    assert world.status.stable == "v1"


def test_a_suspended_object_tells_what_happens_to_it() -> None:
    world = serving()
    world.raw["spec"] = world.raw["spec"] | {"suspend": True}
    world.reconcile()
    assert world.condition("Available")[0] == "True"
    for pod in world.pods[world.revision("v1")]:
        pod.ready_at = world.now + 1000
    world.reconcile()
    assert world.condition("Available") == ("False", "NothingServes")


def test_an_action_on_a_suspended_object_is_refused_and_not_kept_for_later() -> None:
    world = serving()
    world.raw["spec"] = world.raw["spec"] | {"suspend": True}
    world.act("Retry")
    world.reconcile()
    answer = world.status.last_action
    assert (answer.id, answer.result) == (world.status.action.id, "Refused")
    assert "spec.suspend" in answer.message
    world.raw["spec"] = world.raw["spec"] | {"suspend": False}
    world.reconcile()
    assert world.status.last_action == answer


def test_an_edited_definition_of_the_served_version_is_rolled_out_as_a_candidate() -> None:
    world = serving()
    before = world.revision("v1")
    versions = [dict(entry) for entry in world.raw["spec"]["versions"]]
    versions[0]["uri"] = "file:///models/v1-again"
    world.raw["spec"] = world.raw["spec"] | {"versions": versions}
    world.run(20)
    assert world.revision("v1") != before
    assert {entry.role.value for entry in world.status.versions} == {"Stable", "Candidate"}
    assert world.status.candidate == "v1"


def test_a_version_removed_from_the_spec_goes_on_serving_from_its_stored_definition() -> None:
    world = serving()
    stable = world.revision("v1")
    world.raw["spec"] = world.raw["spec"] | {
        "versions": [entry for entry in world.raw["spec"]["versions"] if entry["name"] != "v1"],
        "serve": "v2",
    }
    world.raw["metadata"] = world.raw["metadata"] | {"generation": 2}
    decision = world.reconcile()
    assert stable in decision.revisions
    assert decision.revisions[stable].version.uri == "file:///models/v1"


def test_conflict_leaves_everything_alone() -> None:
    world = World()
    observed = world.observed()
    import dataclasses

    from slipway.engine.decide import Options, decide

    taken = dataclasses.replace(observed, conflict="host m.n is owned by VirtualService other/theirs")
    decision = decide(world.raw, taken, world.metrics(), Options(), world.now)
    assert not decision.apply
    stalled = next(item for item in decision.status.conditions if item.type.value == "Stalled")
    assert (stalled.status, stalled.reason) == ("True", "Conflict")
    assert "other/theirs" in stalled.message
