"""Situations in which an operator may be replaced by another, as seen in a cluster in virtual time (see e2e/faults)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from e2e.faults.world import World

SLOW: dict[str, Any] = {
    "steps": [{"weight": 25, "hold": "2m"}, {"weight": 50, "hold": "10s"}],
    "keepPrevious": "10s",
    "progressDeadline": "10m",
    "analysis": {
        "interval": "10s",
        "checks": [{"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"}],
    },
}
GATEWAY = {"provider": "gateway-api", "settle": "2s"}
SHADOW = {"strategy": "Shadow", "shadow": {"percent": 10}}


async def steady(world: World) -> None:
    """v1 serves all requests."""
    await world.declare("v1", "v1")
    await world.finished("v1", "Promoted", alone="v1")


async def at_a_quarter(world: World) -> None:
    """v2 stands at 25 %."""
    await steady(world)
    await world.declare("v2", "v1", "v2", rollout=SLOW)
    await world.at("v2", 25)
    await asyncio.sleep(20.0)


async def paused(world: World) -> None:
    """A person has paused the rollout at 25 %."""
    await at_a_quarter(world)
    await world.act("Pause")
    await world.until("paused", lambda status: status["phase"] == "Paused")


async def rolled_back(world: World) -> None:
    """v2 was rolled back and the spec still asks for it."""
    await steady(world)
    world.demand.bad["v2"] = 0.8
    await world.declare("v2", "v1", "v2")
    await world.finished("v2", "RolledBack", alone="v1")


async def compared(world: World) -> None:
    """v2 is compared with v1 in the shadow."""
    await steady(world)
    await world.declare("v2", "v1", "v2", rollout=SHADOW)
    await world.until(
        "the comparison", lambda status: len(status["versions"]) == 2 and status["versions"][1].get("qps")
    )
    await asyncio.sleep(30.0)


async def with_autoscaler(world: World) -> None:
    """A HorizontalPodAutoscaler sets the replicas."""
    await world.declare("v1", "v1", autoscaling={"mode": "HPA", "minReplicas": 2, "maxReplicas": 4})
    await world.finished("v1", "Promoted", alone="v1")


async def by_routes(world: World) -> None:
    """v2 stands at 25 % of what the Gateway API leads to it."""
    await world.declare("v1", "v1", traffic=GATEWAY)
    await world.until("v1 serves", lambda status: (status.get("phase"), status.get("stable")) == ("Ready", "v1"))
    await world.declare("v2", "v1", "v2", traffic=GATEWAY, rollout=SLOW)
    await world.at("v2", 25)


async def before_the_end(world: World) -> None:
    """v2 has just been promoted, v1 is still kept."""
    await steady(world)
    await world.declare("v2", "v1", "v2", rollout=SLOW | {"keepPrevious": "10m"})
    await world.until("v2 serves", lambda status: status.get("stable") == "v2" and status["phase"] == "Ready", 900.0)


SITUATIONS: Mapping[str, Callable[[World], Awaitable[None]]] = {
    "steady": steady,
    "quarter": at_a_quarter,
    "paused": paused,
    "rolled-back": rolled_back,
    "shadow": compared,
    "hpa": with_autoscaler,
    "gateway-api": by_routes,
    "promoted": before_the_end,
}
"""By name, which is also that of a namespace."""
