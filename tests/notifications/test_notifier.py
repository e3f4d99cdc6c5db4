"""What reconciles decide, told once to those who want it."""

import asyncio
import json
import re
from typing import Any

import pytest
from slipway.api.status import ModelDeploymentStatus
from slipway.notifications.news import NewsKind
from slipway.notifications.notifier import ANNOTATION, REPEATED, Notifier
from slipway.notifications.receivers import Receiver, ReceiverType

from tests.decide.world import World, serving
from tests.notifications.receiver import LocalReceiver


def without_start(identity: str) -> str:
    return re.sub(r"-[0-9]{8}T[0-9]{6}/", "/", identity)


class Kept:
    """A delivery that keeps what it is given."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.ids: list[str] = []

    def put(self, message: Any) -> None:
        self.ids.append(without_start(message.id))


def receiver(*kinds: NewsKind, namespaces: tuple[str, ...] = ()) -> Receiver:
    return Receiver(
        "r", ReceiverType.WEBHOOK, "http://r/", kinds=frozenset(kinds or NewsKind), namespaces=frozenset(namespaces)
    )


class Told:
    def __init__(self, *receivers: Receiver) -> None:
        self.kept = [Kept(each) for each in receivers or (receiver(),)]
        deliveries: Any = self.kept
        self.notifier = Notifier((), count=lambda name, fate: None, deliveries=deliveries)

    @property
    def ids(self) -> list[str]:
        return self.kept[0].ids


def seen(world: World, status: ModelDeploymentStatus, **metadata: Any) -> dict[str, Any]:
    return {**world.raw, "metadata": {**world.raw["metadata"], **metadata}, "status": status.to_wire()}


def roll_out(world: World, told: Told, **metadata: Any) -> None:
    world.serve("v2")
    for _ in range(100):
        before = world.status
        world.tick(3.0)
        told.notifier.decided(seen(world, before, **metadata), world.status, world.now)
        if world.status.rollout is not None and world.status.rollout.outcome is not None:
            return
    raise AssertionError(world.status.rollout)


ALL = ["u/r-000002/started", "u/r-000002/step-1", "u/r-000002/step-2", "u/r-000002/ended"]


def later(world: World) -> World:
    """So much later that what happened before is no news for anybody."""
    world.tick(REPEATED + 60)
    return world


def test_a_rollout_is_told_once_to_each_who_wants_it():
    world, ends = later(serving()), receiver(NewsKind.PROMOTED, NewsKind.ROLLED_BACK)
    told = Told(receiver(), ends, receiver(namespaces=("other",)))
    roll_out(world, told)
    assert [kept.ids for kept in told.kept] == [ALL, ALL[-1:], []]


def test_a_repeated_decision_is_not_told_again():
    world, told = later(serving()), Told()
    roll_out(world, told)
    raw = seen(world, ModelDeploymentStatus())
    told.notifier.decided(raw, world.status, world.now)
    assert told.ids[: len(ALL)] == ALL
    assert len(told.ids) == len(set(told.ids))


def test_a_restarted_operator_tells_again_what_has_just_happened_by_the_same_names():
    world = later(serving())
    roll_out(world, Told())
    after = Told()
    after.notifier.decided(seen(world, world.status), world.status, world.now)
    assert after.ids == [ALL[0], ALL[-1]]
    late = Told()
    late.notifier.decided(seen(world, world.status), world.status, world.now + REPEATED + 60)
    assert late.ids == []


@pytest.mark.parametrize(
    ("annotation", "ids"),
    [
        ("off", []),
        (" OFF ", []),
        ("Promoted, RolledBack", ALL[-1:]),
        ("nonsense", ALL),
        ("", ALL),
    ],
)
def test_an_object_can_be_muted(annotation: str, ids: list[str]):
    world, told = later(serving()), Told()
    roll_out(world, told, annotations={ANNOTATION: annotation})
    assert told.ids == ids


def test_a_status_that_nobody_can_read_is_passed_over():
    world, told = serving(), Told()
    told.notifier.decided({**world.raw, "status": {"phase": 5}}, world.status, world.now)
    assert told.ids == []


async def test_a_receiver_that_is_away_holds_up_no_other_and_not_the_end():
    fates = list[tuple[str, str]]()
    world = later(serving())
    async with LocalReceiver().open() as local:
        away = Receiver("away", ReceiverType.SLACK, "http://127.0.0.1:1/")
        there = Receiver("there", ReceiverType.WEBHOOK, local.url)
        notifier = Notifier((away, there), count=lambda name, fate: fates.append((name, fate)), cluster="c")
        told = Told()
        told.notifier = notifier
        running = asyncio.ensure_future(notifier.run())
        roll_out(world, told)
        await local.have(len(ALL))
        await notifier.drain(timeout=0.05)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [without_start(json.loads(body)["id"]) for body in local.bodies] == ALL
    assert fates.count(("there", "sent")) == len(ALL)
    assert ("away", "sent") not in fates
