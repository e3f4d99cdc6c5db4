"""The course of rollouts as a user sees it."""

import pytest
from slipway.api.judgement import Judgement
from slipway.api.status import Outcome, Role, Stage, Verdict

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, World, raw_spec, serving


def test_the_first_version_gets_all_traffic_once_it_is_ready() -> None:
    world = World(raw_spec("v1"))
    world.run(4)
    assert world.weight("v1") == 0
    world.run(10)
    assert world.weight("v1") == 100
    assert world.entry("v1").role is Role.STABLE
    assert world.rollout.outcome is Outcome.PROMOTED


def test_a_first_version_that_never_gets_ready_waits_with_its_reason_and_gets_no_traffic() -> None:
    world = World(raw_spec("v1"), start_seconds=1e9)
    world.run(300, step=5)
    assert world.weight("v1") == 0
    assert world.rollout.reason == "ProgressDeadlineExceeded"
    assert world.rollout.outcome is None


def test_a_healthy_candidate_goes_through_all_steps_and_is_promoted() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    seen: list[int] = []
    for _ in range(80):
        world.run(1)
        if not seen or seen[-1] != world.weight("v2"):
            seen.append(world.weight("v2"))
    assert seen == [0, 10, 50, 100]
    assert world.entry("v2").role is Role.STABLE
    assert world.rollout.outcome is Outcome.PROMOTED


def test_the_subset_is_known_and_settled_before_the_first_weight() -> None:
    world = serving()
    world.serve("v2")
    subset_seen = None
    while world.weight("v2") == 0:
        if world.revision("v2") in world.subsets and subset_seen is None:
            subset_seen = world.now
        world.run(1)
    assert subset_seen is not None
    assert world.now - subset_seen >= 2


def test_undecided_evidence_never_moves_the_weight_up() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(600, step=5)
    assert world.weight("v2") == 10
    assert world.rollout.reason == "CollectingEvidence"
    assert world.rollout.deadline


def test_harm_takes_effect_in_one_reconcile() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    assert world.weight("v2") == 10
    world.judgement = HARMFUL
    world.reconcile()
    assert world.weight("v2") == 0
    assert world.weight("v1") == 100
    assert world.rollout.outcome is Outcome.ROLLED_BACK


def test_after_a_rollback_the_candidate_goes_and_is_not_tried_again() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = HARMFUL
    world.run(120)
    assert world.status.revision(world.revision("v2")) is None
    assert world.status.history[-1].outcome is Outcome.ROLLED_BACK
    assert world.status.rollouts == 2


def test_retry_tries_a_rolled_back_candidate_again_from_the_first_step() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = HARMFUL
    world.run(120)
    world.judgement = SAFE
    world.act("Retry", "a1")
    world.run(120)
    assert world.entry("v2").role is Role.STABLE
    assert world.status.last_action.result == "Accepted"


def test_an_abort_returns_traffic_and_ends_as_aborted() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.act("Abort", "a1")
    world.reconcile()
    assert world.weight("v1") == 100
    world.run(60)
    assert world.status.history[-1].outcome is Outcome.ABORTED
    assert world.status.history[-1].by == "ada"


def test_an_action_is_answered_once() -> None:
    world = serving()
    world.act("Abort", "a1")
    world.reconcile()
    answered = world.status.last_action
    assert (answered.result, answered.message) == ("Ignored", "no rollout is in progress")
    world.run(5)
    assert world.status.last_action == answered


@pytest.mark.parametrize("verb", ["", "promote", "Delete"])
def test_an_unknown_verb_is_refused(verb: str) -> None:
    world = serving()
    world.act(verb, "a1")
    world.reconcile()
    assert world.status.last_action.result == "Refused"


def test_pause_holds_the_weight_and_harm_is_still_tested() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    while world.weight("v2") == 0:
        world.run(1)
    world.act("Pause", "a1")
    world.run(120)
    assert world.weight("v2") == 10
    assert world.rollout.reason == "Paused"
    world.judgement = HARMFUL
    world.reconcile()
    assert world.weight("v2") == 0


def test_resume_goes_on_from_the_same_step() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    while world.weight("v2") == 0:
        world.run(1)
    world.act("Pause", "a1")
    world.run(60)
    world.act("Resume", "a2")
    world.run(60)
    assert world.entry("v2").role is Role.STABLE


def test_a_step_with_pause_waits_for_promote() -> None:
    world = serving(steps=[{"weight": 10, "pause": {}}])
    world.serve("v2")
    world.judgement = SAFE
    world.run(120)
    assert world.rollout.reason == "AwaitingPromotion"
    world.act("Promote", "a1")
    world.run(30)
    assert world.entry("v2").role is Role.STABLE


def test_manual_promotion_waits_for_the_approved_version() -> None:
    world = serving(promotion="Manual")
    world.serve("v2")
    world.judgement = SAFE
    world.run(120)
    assert world.weight("v2") == 50
    assert world.rollout.reason == "AwaitingPromotion"
    world.raw["rollout"] = world.raw["rollout"] | {"approvedVersion": "v2"}
    world.run(20)
    assert world.entry("v2").role is Role.STABLE


def test_promote_works_out_of_undecided_and_is_recorded() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(60)
    world.act("Promote", "a1", by="grace")
    world.run(30)
    assert world.weight("v2") == 50
    assert world.rollout.by == "grace"


def test_promote_full_skips_the_remaining_steps() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.act("PromoteFull", "a1")
    world.run(20)
    assert world.entry("v2").role is Role.STABLE


def test_a_new_version_supersedes_and_the_old_candidate_goes_to_zero_first() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.serve("v3")
    world.reconcile()
    assert (world.weight("v1"), world.weight("v2"), world.weight("v3")) == (100, 0, 0)
    world.run(40)
    assert world.status.history[-1].outcome is Outcome.SUPERSEDED
    assert world.weight("v3") == 10


def test_going_back_to_stable_ends_the_rollout_and_touches_no_stable_pod() -> None:
    world = serving()
    stable_pods = list(world.pods[world.revision("v1")])
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.serve("v1")
    world.run(60)
    assert world.status.history[-1].outcome is Outcome.REVERTED
    assert world.weight("v1") == 100
    assert all(one is other for one, other in zip(stable_pods, world.pods[world.revision("v1")], strict=True))


def test_going_back_to_a_warm_previous_version_skips_the_steps() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    while world.weight("v2") != 100 or world.entry("v2").role is not Role.STABLE:
        world.run(1)
    world.judgement = UNDECIDED
    world.serve("v1")
    world.run(10)
    assert world.weight("v1") == 100
    assert world.entry("v1").role is Role.STABLE


def test_the_previous_version_stays_warm_and_then_goes() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    while world.status.rollout is None or world.rollout.outcome is not Outcome.PROMOTED or world.weight("v2") != 100:
        world.run(1)
    world.run(20)
    assert world.entry("v1").role is Role.PREVIOUS
    world.run(40)
    assert world.status.revision(world.revision("v1")) is None


def test_a_crash_loop_before_any_weight_fails_the_rollout() -> None:
    world = serving()
    world.serve("v2")
    world.breaker = Judgement(Verdict.HARMFUL, "CrashLoop", "3 restarts")
    world.run(30)
    assert world.status.history[-1].outcome is Outcome.FAILED
    assert world.weight("v1") == 100


def test_goldens_that_do_not_match_fail_the_rollout_before_any_weight() -> None:
    world = serving()
    world.probes[world.revision("v2")] = False
    world.serve("v2")
    seen = set()
    for _ in range(40):
        world.run(1)
        seen.add(world.weight("v2"))
    assert seen == {0}
    assert world.status.history[-1].outcome is Outcome.FAILED


def test_pods_that_never_get_ready_fail_the_rollout_at_the_deadline() -> None:
    world = serving()
    world.start_seconds = 1e9
    world.serve("v2")
    world.run(180, step=5)
    assert world.rollout.outcome is Outcome.FAILED
    assert world.rollout.reason == "ProgressDeadlineExceeded"


def test_a_candidate_that_loses_its_pods_gives_its_weight_back_and_gets_it_again() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    for pod in world.pods[world.revision("v2")]:
        pod.ready_at = world.now + 15
    world.reconcile()
    assert world.weight("v2") == 0
    world.run(30)
    assert world.weight("v2") == 10


def test_a_weight_waits_for_the_replicas_that_carry_it() -> None:
    world = serving()
    world.demand, world.per_replica = 100.0, 25.0
    world.serve("v2")
    world.judgement = SAFE
    for _ in range(100):
        world.run(1)
        ready = world.entry("v2").ready_replicas if world.status.revision(world.revision("v2")) else 0
        assert world.weight("v2") <= 125 * ready * 25 / 100
    assert world.entry("v2").role is Role.STABLE
    assert len(world.pods[world.revision("v2")]) >= 4


def test_a_dead_stable_loses_its_traffic_to_a_candidate_that_serves() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    for pod in world.pods[world.revision("v1")]:
        pod.crashes = True
    world.reconcile()
    assert world.weight("v2") == 100


def test_onharm_pause_freezes_and_promotefull_overrules() -> None:
    world = serving(analysis={"onHarm": "Pause"})
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.judgement = HARMFUL
    world.run(30)
    assert world.weight("v2") == 10
    assert world.rollout.paused
    world.act("Promote", "a1")
    world.reconcile()
    assert world.status.last_action.result == "Refused"
    world.act("PromoteFull", "a2")
    world.run(20)
    assert world.entry("v2").role is Role.STABLE


@pytest.mark.parametrize(("policy", "weight"), [("Hold", 10), ("Rollback", 0), ("Promote", 50)])
def test_inconclusive_evidence_is_decided_by_policy(policy: str, weight: int) -> None:
    world = serving(analysis={"maxDuration": "60s", "onInconclusive": policy})
    world.serve("v2")
    world.judgement = UNDECIDED
    while world.weight("v2") == 0 or not world.rollout.evidence_from:
        world.run(1)
    world.run(63)
    assert world.weight("v2") == weight


def test_a_lost_status_is_rebuilt_with_the_live_weights_and_no_promotion_is_inferred() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = UNDECIDED
    world.run(30)
    world.status = type(world.status)()
    world.reconcile()
    assert (world.weight("v1"), world.weight("v2")) == (90, 10)
    assert world.entry("v1").role is Role.STABLE
    assert world.rollout.stage in (Stage.SHIFTING, Stage.OBSERVING)


def test_a_shorter_list_of_steps_keeps_the_rollout_going() -> None:
    world = serving()
    world.serve("v2")
    world.judgement = SAFE
    while world.weight("v2") != 50:
        world.run(1)
    world.raw["rollout"] = world.raw["rollout"] | {"steps": [{"weight": 10, "hold": "10s"}]}
    world.run(60)
    assert world.entry("v2").role is Role.STABLE
