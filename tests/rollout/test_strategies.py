"""BlueGreen, Shadow and Recreate as a user sees them, and the step back."""

import pytest
from slipway.api.judgement import Judgement
from slipway.api.status import Outcome, Role, Stage, Verdict

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, World, serving


def test_blue_green_is_fully_sized_at_weight_0_and_then_switched_at_once() -> None:
    world = serving(replicas=3, strategy="BlueGreen")
    world.serve("v2")
    seen: list[int] = []
    for _ in range(80):
        world.run(1)
        if not seen or seen[-1] != world.weight("v2"):
            seen.append(world.weight("v2"))
            if seen[-1] == 100:
                assert world.entry("v2").ready_replicas >= 3
    assert seen == [0, 100]
    assert world.entry("v2").role is Role.STABLE


def test_blue_green_keeps_the_old_version_warm_and_goes_back_without_a_cold_start() -> None:
    world = serving(replicas=2, strategy="BlueGreen", keepPrevious="10m")
    world.serve("v2")
    world.run(80)
    assert world.entry("v1").role is Role.PREVIOUS
    old = list(world.pods[world.revision("v1")])
    world.serve("v1")
    world.run(12)
    assert world.weight("v1") == 100
    assert world.entry("v1").role is Role.STABLE
    assert all(one is other for one, other in zip(old, world.pods[world.revision("v1")], strict=True))


def test_manual_blue_green_waits_as_a_preview_and_is_switched_by_promote() -> None:
    world = serving(strategy="BlueGreen", promotion="Manual")
    world.serve("v2")
    world.run(60)
    assert (world.weight("v2"), world.rollout.reason) == (0, "AwaitingPromotion")
    assert world.entry("v2").subset
    world.act("Promote", "a1")
    world.run(60)
    assert world.entry("v2").role is Role.STABLE


def test_a_blue_green_switch_is_watched_and_taken_back_by_a_breaker() -> None:
    world = serving(strategy="BlueGreen")
    world.serve("v2")
    while world.weight("v2") != 100:
        world.run(1)
    world.breaker = Judgement(Verdict.HARMFUL, "ErrorBurst", "40 of 50 requests failed")
    world.reconcile()
    assert (world.weight("v1"), world.rollout.outcome) == (100, Outcome.ROLLED_BACK)


def test_blue_green_that_loses_pods_before_the_switch_waits_for_them() -> None:
    world = serving(replicas=2, strategy="BlueGreen", promotion="Manual")
    world.serve("v2")
    world.run(60)
    world.pods[world.revision("v2")][0].ready_at = world.now + 20
    world.act("Promote", "a1")
    world.run(10)
    assert (world.weight("v2"), world.rollout.reason) == (0, "WaitingForCapacity")
    world.run(80)
    assert world.entry("v2").role is Role.STABLE


def test_shadow_compares_at_weight_0_and_switches_on_evidence() -> None:
    world = serving(strategy="Shadow", shadow={"percent": 10})
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(90)
    assert (world.weight("v2"), world.rollout.reason) == (0, "CollectingEvidence")
    assert world.rollout.evidence_from
    world.judge(SAFE)
    world.run(60)
    assert world.entry("v2").role is Role.STABLE


def test_shadow_evidence_against_the_candidate_ends_the_rollout_without_any_weight() -> None:
    world = serving(strategy="Shadow", shadow={"percent": 10})
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(60)
    world.judge(HARMFUL)
    world.run(30)
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK
    assert world.weight("v1") == 100


def test_shadow_evidence_does_not_count_for_served_requests() -> None:
    world = serving(strategy="Shadow", shadow={"percent": 10})
    world.serve("v2")
    world.judge(SAFE)
    while world.weight("v2") == 0:
        world.run(1)
        compared = world.rollout.evidence_from
    world.run(5)
    assert world.rollout.evidence_from != compared


def test_recreate_stops_stable_before_the_candidate_starts() -> None:
    world = serving(replicas=2, strategy="Recreate")
    world.leave_seconds = 6
    world.serve("v2")
    reasons = set()
    for _ in range(80):
        world.run(1)
        reasons.add(world.rollout.reason)
        stable, candidate = (len(world.pods.get(world.revision(name), [])) for name in ("v1", "v2"))
        assert not (stable and candidate)
    assert "StoppingStable" in reasons
    assert world.entry("v2").role is Role.STABLE
    assert "v1" not in {entry.name for entry in world.status.versions}


def test_recreate_says_that_requests_fail() -> None:
    world = serving(strategy="Recreate")
    world.serve("v2")
    world.run(2)
    assert "requests fail" in world.rollout.message


def test_a_recreate_that_fails_brings_stable_back_once_the_candidate_is_gone() -> None:
    world = serving(replicas=2, strategy="Recreate")
    world.serve("v2")
    world.probes[world.revision("v2")] = False
    for _ in range(90):
        world.run(1)
        stable, candidate = (len(world.pods.get(world.revision(name), [])) for name in ("v1", "v2"))
        assert not (stable and candidate)
    assert world.status.history[-1].outcome is Outcome.FAILED
    assert world.weight("v1") == 100
    assert world.entry("v1").ready_replicas == 2


def test_an_abort_of_recreate_before_the_candidate_exists_brings_stable_back() -> None:
    world = serving(replicas=2, strategy="Recreate")
    world.leave_seconds = 20
    world.serve("v2")
    world.run(3)
    world.act("Abort", "a1")
    world.run(60)
    assert world.status.history[-1].outcome is Outcome.ABORTED
    assert world.entry("v1").ready_replicas == 2


def test_an_edit_of_the_strategy_holds_for_the_next_rollout() -> None:
    world = serving()
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(30)
    assert world.weight("v2") == 10
    world.raw["rollout"] = world.raw["rollout"] | {"strategy": "Recreate"}
    world.run(10)
    assert world.weight("v2") == 10
    assert world.entry("v1").ready_replicas == 1


def stepping(weight: int) -> World:
    """A rollout that has reached a weight, with onHarm StepDown."""
    world = serving(analysis={"onHarm": "StepDown"})
    world.serve("v2")
    world.judge(SAFE if weight > 10 else UNDECIDED)
    while world.weight("v2") != weight:
        world.run(1)
    world.judge(UNDECIDED)
    world.run(5)
    return world


def test_harm_goes_one_step_back_in_one_reconcile_and_collects_fresh_evidence() -> None:
    world = stepping(50)
    world.judge(HARMFUL)
    world.reconcile()
    assert world.weight("v2") == 10
    assert world.rollout.outcome is None
    assert world.rollout.evidence_from == ""
    assert world.rollout.stepped_down_for == "errors"
    world.run(10)
    assert world.weight("v2") == 10
    assert world.rollout.stage is Stage.OBSERVING
    assert world.rollout.evidence_from


def test_harm_found_again_after_the_step_back_is_rolled_back() -> None:
    world = stepping(50)
    world.judge(HARMFUL)
    world.run(10)
    world.judge(HARMFUL)
    world.reconcile()
    assert (world.weight("v2"), world.rollout.outcome) == (0, Outcome.ROLLED_BACK)


def test_a_candidate_that_recovers_after_the_step_back_climbs_again() -> None:
    world = stepping(50)
    world.judge(HARMFUL)
    world.run(10)
    world.judge(SAFE)
    world.run(60)
    assert world.entry("v2").role is Role.STABLE


def test_there_is_no_step_before_the_first_one() -> None:
    world = stepping(10)
    world.judge(HARMFUL)
    world.reconcile()
    assert (world.weight("v2"), world.rollout.outcome) == (0, Outcome.ROLLED_BACK)


@pytest.mark.parametrize("strategy", ["Canary", "BlueGreen", "Shadow", "Recreate"])
def test_a_missing_mesh_is_named(strategy: str) -> None:
    world = serving(strategy=strategy, shadow={"percent": 10})
    world.mesh_missing = True
    world.serve("v2")
    world.judge(SAFE)
    world.run(60)
    assert world.rollout.reason == "MeshMissing"
