"""Pods that cannot be had, and what is left of rollouts that ended."""

from slipway.api.status import Outcome

from tests.rollout.world import HARMFUL, SAFE, UNDECIDED, serving


def test_a_shortage_is_named_and_given_up_at_the_deadline() -> None:
    world = serving(replicas=3)
    world.serve("v2")
    world.judge(SAFE)
    while world.weight("v2") < 10:
        world.run(1)
    world.shortage = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    world.run(60)
    assert world.weight("v2") <= 41
    assert world.rollout.reason == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in world.rollout.message
    world.run(130)
    assert world.status.history[-1].outcome is Outcome.FAILED
    assert world.weight("v1") == 100


def test_an_exceeded_quota_is_named() -> None:
    world = serving()
    world.serve("v2")
    world.failures[world.revision("v2")] = "pods is forbidden: exceeded quota: gpus"
    world.start_seconds = 1e9
    world.run(20)
    assert (world.rollout.reason, world.weight("v1")) == ("QuotaExceeded", 100)


def test_an_unrelated_edit_does_not_retry_an_aborted_rollout() -> None:
    world = serving()
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(30)
    world.act("Abort", "a1")
    world.run(60)
    world.raw["rollout"] = world.raw["rollout"] | {"keepPrevious": "40s"}
    world.run(60)
    assert world.status.rollouts == 2
    assert world.weight("v1") == 100


def test_history_is_bounded_and_newest_last() -> None:
    world = serving()
    for number in range(25):
        world.serve("v2")
        world.judge(HARMFUL)
        world.run(60)
        world.act("Retry", f"a{number}")
        world.run(1)
    assert len(world.status.history) == 20
    assert world.status.history[-1].id > world.status.history[-2].id
