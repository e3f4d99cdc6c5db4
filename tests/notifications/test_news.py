"""Transitions of real rollouts give exactly the expected news, whenever and by whomever they are derived."""

import re
from collections.abc import Callable

import pytest
from slipway.api.status import ModelDeploymentStatus
from slipway.notifications.news import News, NewsKind, news_between, recent_news

from tests.decide.world import World, model_deployment, serving


def told(world: World, until: Callable[[], bool], seconds: float = 3.0) -> list[News]:
    """All news until something holds, as one process tells it: each transition once."""
    found: dict[str, News] = {}
    for _ in range(200):
        before = world.status
        world.tick(seconds)
        for news in news_between(before, world.status):
            found.setdefault(news.transition, news)
        if until():
            return list(found.values())
    raise AssertionError(f"it did not come so far: {world.status.rollout}")


def ended(world: World) -> Callable[[], bool]:
    return lambda: world.status.rollout is not None and world.status.rollout.stage == "Finished"


def short(news: list[News]) -> list[tuple[str, str]]:
    """Kinds and names, without the time of the rollout's start."""
    return [(each.kind.value, re.sub(r"-[0-9]{8}T[0-9]{6}/", "/", each.transition)) for each in news]


def test_the_first_version():
    world = World(model_deployment())
    news = told(world, lambda: world.status.phase == "Ready")
    assert short(news) == [("Started", "r-000001/started"), ("Promoted", "r-000001/ended")]
    assert [each.text for each in news] == [
        "rollout of v1 begins; it is the first version",
        "v1 is promoted and serves all traffic",
    ]


def test_a_good_rollout():
    world = serving()
    world.serve("v2")
    news = told(world, ended(world))
    assert short(news) == [
        ("Started", "r-000002/started"),
        ("Step", "r-000002/step-1"),
        ("Step", "r-000002/step-2"),
        ("Promoted", "r-000002/ended"),
    ]
    assert [each.text for each in news] == [
        "rollout of v2 begins beside v1",
        "v2 has 10 % of requests, step 1 of 2",
        "v2 has 50 % of requests, step 2 of 2",
        "v2 is promoted and serves all traffic",
    ]
    assert (news[1].facts["weight"], news[1].facts["step"], news[1].facts["from"]) == (10, 1, "v1")
    assert news[3].facts["outcome"] == "Promoted"
    assert all(each.at for each in news)


def test_a_harmful_one_is_told_when_it_is_found_and_not_again_when_traffic_is_back():
    world = serving()
    world.error_rates["v2"] = 0.4
    world.serve("v2")
    news = told(world, lambda: world.status.rollout is not None and world.status.rollout.outcome is not None)
    assert short(news)[-1] == ("RolledBack", "r-000002/ended")
    assert world.status.rollout is not None
    assert world.status.rollout.stage == "Returning"
    assert news[-1].text.startswith("rollout of v2 is rolled back, v1 serves: ")
    assert news[-1].facts["outcome"] == "RolledBack"
    assert short(told(world, ended(world))) == []


def test_a_pause_and_an_abort_by_a_person():
    world = serving()
    world.serve("v2")
    told(world, lambda: world.weight("v2") == 10)
    world.act("Pause")
    first = told(world, lambda: world.status.phase == "Paused")
    (pause,) = [each for each in first if each.kind is NewsKind.PAUSED]
    assert pause.text == "rollout of v2 is paused at 10 %: Paused: paused by ada"
    world.act("Resume")
    told(world, lambda: world.status.phase == "Progressing")
    world.act("Pause")
    (again,) = told(world, lambda: world.status.phase == "Paused")
    assert (again.kind, again.transition != pause.transition) == (NewsKind.PAUSED, True)
    world.act("Abort")
    (abort,) = told(world, ended(world))
    assert (abort.kind, abort.facts["outcome"], abort.facts["by"]) == (NewsKind.ROLLED_BACK, "Aborted", "ada")
    assert "rollout of v2 is aborted, v1 serves" in abort.text


def test_a_step_that_waits_for_a_person():
    rollout = model_deployment()["spec"]["rollout"] | {"steps": [{"weight": 10, "pause": {}}, {"weight": 50}]}
    world = serving(rollout=rollout)
    world.serve("v2")
    news = told(world, lambda: world.status.phase == "Paused")
    assert short(news)[-1] == ("Paused", "r-000002/step-1-AwaitingPromotion")
    before = world.status
    world.tick(600.0)
    assert list(news_between(before, world.status)) == []


def test_harm_that_only_pauses():
    analysis = model_deployment()["spec"]["rollout"]["analysis"] | {"onHarm": "Pause"}
    world = serving(rollout=model_deployment()["spec"]["rollout"] | {"analysis": analysis})
    world.error_rates["v2"] = 0.2
    world.serve("v2")
    news = told(world, lambda: world.status.phase == "Paused")
    assert short(news)[-1] == ("Paused", "r-000002/paused-harm")


def test_another_version_takes_over_and_a_retry_is_a_rollout_of_its_own():
    world = serving()
    world.serve("v2")
    told(world, lambda: world.weight("v2") == 10)
    world.serve("v3")
    news = told(world, lambda: world.status.rollout is not None and world.status.rollout.to == "v3")
    assert short(news) == [("RolledBack", "r-000002/ended"), ("Started", "r-000003/started")]
    assert news[0].text == "rollout of v2 is superseded, v1 serves: Superseded: superseded by v3"
    world.act("Abort")
    told(world, ended(world))
    world.act("Retry")
    news = told(world, lambda: world.status.rollout is not None and world.status.rollout.id == "r-000004")
    assert short(news) == [("Started", "r-000004/started")]


def test_scaled_to_the_limit_once_for_each_time_there():
    world = serving()
    world.qps = 500.0
    news = told(world, lambda: world.condition("ScalingActive")[1] == "LimitedMax")
    (limit,) = news
    assert limit.kind is NewsKind.LIMIT
    assert limit.text.startswith("v1 is at its limit of 6 replicas: LimitedMax: ")
    assert limit.facts["replicas"] == 6
    assert told(world, lambda: True) == []
    world.qps = 90.0
    told(world, lambda: world.condition("ScalingActive")[1] != "LimitedMax")
    world.qps = 500.0
    (flapped,) = told(world, lambda: world.condition("ScalingActive")[1] == "LimitedMax")
    assert flapped.transition == limit.transition, "no replica has changed in between"


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_another_process_finds_the_same_names(rate: float):
    world = serving()
    world.error_rates["v2"] = rate
    begun = world.now
    world.serve("v2")
    news = told(world, ended(world))
    again = list(recent_news(world.status, begun))
    wanted = {each.transition for each in news if each.kind is not NewsKind.STEP}
    assert {each.transition for each in again} == wanted
    assert list(recent_news(world.status, world.now + 1)) == []


def test_a_step_that_is_under_way_is_found_as_well():
    world = serving()
    world.serve("v2")
    told(world, lambda: world.status.rollout is not None and world.status.rollout.stage == "Observing")
    assert short(list(recent_news(world.status, world.now - 60)))[-1] == ("Step", "r-000002/step-1")


def test_a_rollout_of_the_same_number_after_a_lost_status_is_another_one():
    world = serving()
    world.serve("v2")
    first = told(world, lambda: world.weight("v2") == 10)
    world.status = ModelDeploymentStatus()
    again = told(world, lambda: world.weight("v2") == 10)
    world.act("Abort")
    again += told(world, ended(world))
    assert not {each.transition for each in first} & {each.transition for each in again}


def test_nothing_is_no_news():
    world = serving()
    assert list(news_between(world.status, world.status)) == []
    assert list(news_between(ModelDeploymentStatus(), ModelDeploymentStatus())) == []
