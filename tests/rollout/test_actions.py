"""Requests through status.action: late copies, other writers, other rollouts."""

from slipway.api.status import Action

from tests.rollout.world import UNDECIDED, World, serving


def ask(world: World, verb: str, identity: str, **more: str) -> tuple[str, str]:
    """Write a request and let the operator look; its result and message."""
    action = Action(id=identity, verb=verb, by="ada", **more)
    world.status = world.status.model_copy(update={"action": action})
    world.reconcile()
    return world.status.last_action.result, world.status.last_action.message


def rolling() -> World:
    world = serving()
    world.serve("v2")
    world.judge(UNDECIDED)
    world.run(30)
    return world


def test_a_late_copy_of_an_answered_request_does_nothing() -> None:
    world = rolling()
    assert ask(world, "Pause", "one")[0] == "Accepted"
    assert ask(world, "Resume", "two")[0] == "Accepted"
    result, message = ask(world, "Pause", "one")
    assert result == "Ignored"
    assert "answered before" in message
    assert not world.rollout.paused


def test_two_writers_are_both_answered_and_the_last_answer_stays() -> None:
    world = rolling()
    ask(world, "Pause", "from-a-person")
    ask(world, "Promote", "from-a-pipeline")
    assert world.status.last_action.id == "from-a-pipeline"
    assert world.status.answered == ("from-a-person", "from-a-pipeline")


def test_a_request_for_another_rollout_is_refused() -> None:
    world = rolling()
    result, message = ask(world, "PromoteFull", "late", rollout="r-000001")
    assert result == "Refused"
    assert "r-000001" in message
    assert ask(world, "PromoteFull", "now", rollout=world.rollout.id)[0] == "Accepted"


def test_only_the_last_requests_are_remembered() -> None:
    world = rolling()
    for number in range(30):
        ask(world, "Resume", f"a{number}")
    assert len(world.status.answered) == 20
    assert world.status.answered[-1] == "a29"


def test_a_request_is_answered_after_the_operator_died_before_its_status_was_written() -> None:
    world = rolling()
    world.act("Abort", "one")
    world.reconcile(persist=False)
    assert world.status.last_action.id == ""
    world.reconcile()
    assert (world.status.last_action.id, world.status.last_action.result) == ("one", "Accepted")
    world.run(60)
    assert [item.outcome.value for item in world.status.history].count("Aborted") == 1
