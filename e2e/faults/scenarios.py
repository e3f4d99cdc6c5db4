"""What a user and the world do to a ModelDeployment while a fault strikes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from e2e.faults.world import World

__all__ = ["SCENARIOS", "Scenario"]

LATE = 300.0
"""Seconds of the last step where something happens within it: a call that gets no answer must not outlast it."""


async def deploy(world: World) -> None:
    """The first version, by a process that has just been started."""
    await world.declare("v1", "v1")
    await world.finished("v1", "Promoted", alone="v1")


async def roll_out(world: World) -> None:
    """v2 replaces v1, judged by a check."""
    await world.declare("v2", "v1", "v2")
    await world.finished("v2", "Promoted", alone="v2")


async def abort(world: World) -> None:
    """A person aborts at half of the traffic."""
    await world.declare("v2", "v1", "v2", last_hold=LATE)
    await world.at("v2", 50)
    await world.act("Abort")
    await world.finished("v2", "Aborted", alone="v1")


async def roll_back(world: World) -> None:
    """v2 answers most requests with errors and is rolled back."""
    world.demand.bad["v2"] = 0.8
    await world.declare("v2", "v1", "v2")
    await world.finished("v2", "RolledBack", alone="v1")


async def scale_up(world: World) -> None:
    """Five times the requests come."""
    world.demand.qps = 200.0
    await world.until("four replicas", lambda status: status["versions"][0]["replicas"] == 4)
    await world.until("four ready pods", lambda status: status["versions"][0]["readyReplicas"] == 4)


async def delete(world: World) -> None:
    """The object is deleted at half of the traffic."""
    await world.declare("v2", "v1", "v2", last_hold=LATE)
    await world.at("v2", 50)
    await world.delete()
    while world.children():  # noqa: ASYNC110  only asking tells
        await asyncio.sleep(1.0)


@dataclass(frozen=True)
class Scenario:
    """Something that happens to v1, which serves all requests when it begins."""

    title: str
    play: Callable[[World], Awaitable[None]]
    bare: bool = False
    """Nothing is there when it begins, not even the first lists of the operator."""


SCENARIOS = (
    Scenario("first deployment", deploy, bare=True),
    Scenario("rollout", roll_out),
    Scenario("abort at 50 %", abort),
    Scenario("roll-back by evidence", roll_back),
    Scenario("scale-up", scale_up),
    Scenario("deletion at 50 %", delete),
)
