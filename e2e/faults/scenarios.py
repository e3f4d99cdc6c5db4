"""What a user and the world do to a ModelDeployment while a fault strikes."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from slipway.kube.kinds import DEPLOYMENT, POD

from e2e.faults.api import Obj
from e2e.faults.world import LAG, World
from e2e.sandbox.apiserver.store import Change

__all__ = ["SCENARIOS", "Scenario"]

Play = Callable[[World], Awaitable[None]]

LATE = 300.0
"""Seconds of the last step where something happens within it: a call that gets no answer must not outlast it."""
SWIFT = {"minReplicas": 1, "maxReplicas": 4, "qps": {"target": 60}, "cooldown": "10s", "stabilizationWindow": "10s"}
"""Autoscaling that removes a replica after seconds instead of minutes."""
ON_GPUS = {
    "runtime": {"resources": {"limits": {"nvidia.com/gpu": 1}}},
    "autoscaling": {"minReplicas": 2, "maxReplicas": 4, "qps": {"target": 60}},
}
"""Two pods with a GPU each."""
SUSPENDED = 60.0
"""Seconds for which nothing is changed."""


async def nothing(world: World) -> None:
    """Nothing is there, not even the first lists of the operator."""
    await asyncio.sleep(0)


async def serving(world: World) -> None:
    """v1 serves all requests."""
    await world.declare("v1", "v1")
    await world.finished("v1", "Promoted", alone="v1")
    world.mesh.armed = True


async def serving_with_four(world: World) -> None:
    """v1 serves many requests with four pods."""
    world.demand.qps = 200.0
    await world.declare("v1", "v1", autoscaling=SWIFT)
    await world.finished("v1", "Promoted", alone="v1")
    world.mesh.armed = True
    await scaled_to(world, 4)


async def serving_on_gpus(world: World) -> None:
    """v1 serves with two pods that have a GPU each."""
    await world.declare("v1", "v1", **ON_GPUS)
    await world.finished("v1", "Promoted", alone="v1")
    world.mesh.armed = True


async def scaled_to(world: World, replicas: int) -> None:
    """Wait until v1 has so many pods, and all are ready."""

    def there(status: Obj) -> bool:
        entry = status["versions"][0]
        return (entry["replicas"], entry["readyReplicas"]) == (replicas, replicas)

    await world.until(f"{replicas} replicas", there)


def applied(status: Obj, version: str) -> list[int]:
    """The weight that the router has for a version; empty where there is no such version."""
    return [entry["weight"]["applied"] for entry in status["versions"] if entry["name"] == version]


async def to_half(world: World) -> None:
    """v2 gets half of the traffic, and will have it for long."""
    await world.declare("v2", "v1", "v2", last_hold=LATE)
    await world.at("v2", 50)


async def at_half(world: World) -> None:
    """v1 and v2 have half of the traffic each; how that comes about is struck in other scenarios."""
    await serving(world)
    await to_half(world)


async def gone(world: World) -> None:
    """Wait until nothing is left that the operator has made."""
    while world.children():  # noqa: ASYNC110  only asking tells
        await asyncio.sleep(1.0)


async def deploy(world: World) -> None:
    """The first version, by a process that has just been started."""
    await serving(world)


async def roll_out(world: World) -> None:
    """v2 replaces v1, judged by a check."""
    await world.declare("v2", "v1", "v2")
    await world.finished("v2", "Promoted", alone="v2")


async def switch(world: World) -> None:
    """v2 replaces v1 at once, as soon as it has as many pods."""
    await world.declare("v2", "v1", "v2", rollout={"strategy": "BlueGreen"})
    await world.finished("v2", "Promoted", alone="v2")


async def recreate(world: World) -> None:
    """v1 is stopped before v2 is started: an outage by choice, until the mesh has led all traffic to v2."""
    world.mesh.armed = False
    await world.declare("v2", "v1", "v2", rollout={"strategy": "Recreate"})
    await world.until("v2 has all traffic", lambda status: applied(status, "v2") == [100])
    await asyncio.sleep(LAG)
    world.mesh.armed = True
    await world.finished("v2", "Promoted", alone="v2")


async def swap(world: World) -> None:
    """v2 takes the GPUs of v1 one after the other: there is no third."""
    most = 0

    def count(_: Change) -> None:
        nonlocal most
        most = max(most, len(world.api.objects(POD, world.namespace)))

    ends = world.api.listen(POD, count)
    try:
        await world.declare("v2", "v1", "v2", rollout={"maxSurgeGPUs": 0}, **ON_GPUS)
        await world.finished("v2", "Promoted", alone="v2")
    finally:
        ends()
    assert most == 2, f"{most} pods for two GPUs"


async def edit(world: World) -> None:
    """Another environment for the version that serves: another revision of it."""
    await world.declare("v1", "v1", runtime={"env": [{"name": "LANG", "value": "C"}]})
    await world.until("a second rollout", lambda status: len(status["history"]) == 2)
    await world.finished("v1", "Promoted", alone="v1")


async def abort(world: World) -> None:
    """A person aborts at half of the traffic."""
    await to_half(world)
    await world.act("Abort")
    await world.finished("v2", "Aborted", alone="v1")


async def roll_back(world: World) -> None:
    """v2 answers most requests with errors and is rolled back."""
    world.demand.bad["v2"] = 0.8
    await world.declare("v2", "v1", "v2")
    await world.finished("v2", "RolledBack", alone="v1")


async def supersede(world: World) -> None:
    """v3 is wanted while v2 has half of the traffic."""
    await world.declare("v3", "v1", "v2", "v3")
    await world.finished("v3", "Promoted", alone="v3")


async def revert(world: World) -> None:
    """v1 is wanted again while v2 has half of the traffic."""
    await world.declare("v1", "v1", "v2", last_hold=LATE)
    await world.finished("v2", "Reverted", alone="v1")


async def suspend(world: World) -> None:
    """Nothing is changed for a minute while v2 has half of the traffic; then a person promotes v2."""
    await world.declare("v2", "v1", "v2", last_hold=LATE, suspend=True)
    await world.until("it is suspended", lambda status: status["phase"] == "Suspended")
    before = world.children()
    await asyncio.sleep(SUSPENDED)
    assert world.children() == before, "changed while suspended"
    await world.declare("v2", "v1", "v2", last_hold=LATE)
    await world.until("it is not suspended", lambda status: status["phase"] != "Suspended")
    await world.act("PromoteFull")
    await world.finished("v2", "Promoted", alone="v2")


async def act(world: World) -> None:
    """A person pauses the rollout at half of the traffic, resumes it and promotes it."""
    asked = [await world.acted(verb) for verb in ("Pause", "Resume", "PromoteFull")]
    await world.finished("v2", "Promoted", alone="v2")
    answers = [status["lastAction"] for status in world.statuses if status.get("lastAction", {}).get("id")]
    once = [answer for number, answer in enumerate(answers) if number == 0 or answer != answers[number - 1]]
    assert [(answer["id"], answer["result"]) for answer in once] == [(name, "Accepted") for name in asked], once


async def scale_up(world: World) -> None:
    """Five times the requests come."""
    world.demand.qps = 200.0
    await scaled_to(world, 4)


async def scale_down(world: World) -> None:
    """A fifth of the requests is left; one pod goes after the other."""
    seen: list[int] = []
    ends = world.api.listen(DEPLOYMENT, lambda change: seen.append(change.new.obj["spec"]["replicas"]))
    try:
        world.demand.qps = 40.0
        await scaled_to(world, 1)
    finally:
        ends()
    assert seen == sorted(seen, reverse=True), seen
    assert set(seen) >= {3, 2, 1}, seen


async def delete(world: World) -> None:
    """The object is deleted at half of the traffic."""
    await to_half(world)
    await world.delete()
    await gone(world)


async def delete_namespace(world: World) -> None:
    """The namespace is deleted at half of the traffic."""
    await to_half(world)
    world.mesh.armed = False
    await world.api.ask("DELETE", f"/api/v1/namespaces/{world.namespace}")
    await gone(world)


@dataclass(frozen=True)
class Scenario:
    """Something that happens to a ModelDeployment."""

    title: str
    play: Play
    before: Play = serving
    """What there is when it begins; no fault strikes before."""
    standby: bool = False
    """Whether two operators compete for a lease; faults strike the one that leads."""


SCENARIOS = (
    Scenario("first deployment", deploy, before=nothing),
    Scenario("rollout", roll_out),
    Scenario("rollout, beside a standby", roll_out, standby=True),
    Scenario("blue/green", switch),
    Scenario("recreate", recreate),
    Scenario("swap of GPUs", swap, before=serving_on_gpus),
    Scenario("edit of the version that serves", edit),
    Scenario("abort at 50 %", abort),
    Scenario("roll-back by evidence", roll_back),
    Scenario("supersede at 50 %", supersede, before=at_half),
    Scenario("revert at 50 %", revert, before=at_half),
    Scenario("suspended for a minute at 50 %", suspend, before=at_half),
    Scenario("pause, resume and promotion by a person", act, before=at_half),
    Scenario("scale-up", scale_up),
    Scenario("scale-down", scale_down, before=serving_with_four),
    Scenario("deletion at 50 %", delete),
    Scenario("deletion of the namespace at 50 %", delete_namespace),
)
