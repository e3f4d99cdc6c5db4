"""Statuses that the operator really writes, one object per phase and more for special moments."""

import functools
from typing import Any

from slipway.api.status import Action, ModelDeploymentStatus, Phase, Stage
from slipway.engine.decide import Options, decide

from tests.decide.world import World, model_deployment, serving

Object = dict[str, Any]


def seen(world: World) -> Object:
    """The object as the API server holds it."""
    return {
        "apiVersion": "slipway.dev/v1alpha1",
        "kind": "ModelDeployment",
        **world.raw,
        "status": world.status.to_wire(),
    }


def _until(world: World, phase: Phase, ticks: int = 400) -> Object:
    for _ in range(ticks):
        if world.status.phase is phase:
            return seen(world)
        world.tick()
    raise AssertionError(f"{phase} is not reached; the phase is {world.status.phase}")


def _act(world: World, verb: str) -> None:
    world.status = world.status.model_copy(update={"action": Action(id=verb, verb=verb, by="tests")})


def _stage(world: World, stage: Stage) -> None:
    while world.status.rollout is None or world.status.rollout.stage is not stage:
        world.tick()


@functools.cache
def recorded() -> dict[str, Object]:
    """An object for each phase, by its name; and `Fresh`, `Deleted`, `Edited`, `Broken`, `NotYetSeen`."""
    objects: dict[str, Object] = {}
    world = World(model_deployment())
    objects["NotYetSeen"] = {name: value for name, value in seen(world).items() if name != "status"}
    world.reconcile()
    objects["Pending"] = seen(world)

    world = serving()
    objects["Ready"] = seen(world)
    objects["Edited"] = {**seen(world), "metadata": {**world.raw["metadata"], "generation": 9}}
    objects["Deleted"] = {
        **seen(world),
        "metadata": {**world.raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
    }
    world.serve("v2")
    objects["Progressing"] = _until(world, Phase.PROGRESSING)
    _stage(world, Stage.OBSERVING)
    _act(world, "Pause")
    objects["Paused"] = _until(world, Phase.PAUSED)
    _act(world, "Resume")
    world.tick()
    objects["Promoting"] = _until(world, Phase.PROMOTING)

    world = serving()
    world.error_rates["v2"] = 0.4
    world.serve("v2")
    objects["RollingBack"] = _until(world, Phase.ROLLING_BACK)
    objects["Stalled"] = _until(world, Phase.STALLED)

    world = serving()
    for pods in world.pods.values():
        for pod in pods:
            pod.crashes = True
    objects["Degraded"] = _until(world, Phase.DEGRADED)

    world = serving()
    world.raw["spec"] = world.raw["spec"] | {"suspend": True}
    world.reconcile()
    objects["Suspended"] = seen(world)

    world = serving()
    world.raw["spec"] = world.raw["spec"] | {"serve": "nothing"}
    decision = decide(
        world.raw | {"status": world.status.to_wire()}, world.observed(), world.metrics(), Options(), world.now
    )
    world.status = ModelDeploymentStatus.from_wire(decision.status.to_wire())
    objects["Broken"] = seen(world)
    return objects
