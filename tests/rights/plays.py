"""What is done in the cluster, so that each right is wanted at some moment; nothing here waits for a success."""

import asyncio
from collections.abc import Awaitable, Callable

from e2e.faults.world import NAME, World

Play = Callable[[World], Awaitable[None]]
POLICIES = {
    "auth": {"jwt": {"issuer": "https://issuer.example.com", "jwksUri": "https://issuer.example.com/keys"}},
    "resilience": {"rateLimit": {"requestsPerSecond": 100}},
}
HPA = {"mode": "HPA", "minReplicas": 2, "maxReplicas": 4}
GATEWAY = {"provider": "gateway-api", "settle": "2s"}
QUICK = {"strategy": "BlueGreen", "keepPrevious": "1s", "progressDeadline": "5m", "revisionHistoryLimit": 1}
ALONE = {"mode": "None"}
LONG_AGO = 20.0
"""Seconds after which everything has been done that will be done."""


async def begin(world: World) -> None:
    """A first version with tokens, a rate limit and an autoscaler of Kubernetes."""
    await world.declare("v1", "v1", traffic={"settle": "2s", **POLICIES}, autoscaling=HPA)
    await asyncio.sleep(LONG_AGO)


async def route(world: World) -> None:
    """A first version whose requests come by the Gateway API."""
    await world.declare("v1", "v1", traffic=GATEWAY)
    await asyncio.sleep(LONG_AGO)


async def shed(world: World) -> None:
    """Everything that can be switched off is switched off."""
    await begin(world)
    await world.declare("v1", "v1", traffic={"provider": "none"}, rollout=QUICK, autoscaling=ALONE, replicas=1)
    await asyncio.sleep(LONG_AGO)


async def move(world: World) -> None:
    """From the Gateway API to Istio."""
    await route(world)
    await world.declare("v1", "v1")
    await asyncio.sleep(LONG_AGO)


async def succeed(world: World) -> None:
    """v2 replaces v1, v3 replaces v2, and a short history is kept."""
    for version in ("v1", "v2", "v3"):
        await world.declare(version, version, rollout=QUICK | {"strategy": "Recreate"})
        # The version before goes when it is seen to get no requests any more.
        await asyncio.sleep(2 * LONG_AGO)


async def compare(world: World) -> None:
    """v2 is compared with v1 in the shadow."""
    await world.declare("v1", "v1", autoscaling=ALONE)
    await asyncio.sleep(LONG_AGO)
    await world.declare("v2", "v1", "v2", autoscaling=ALONE, rollout={"strategy": "Shadow", "shadow": {"percent": 10}})
    await asyncio.sleep(LONG_AGO)


async def forget(world: World) -> None:
    """The comparison is called off."""
    await compare(world)
    await world.act("Abort")
    await asyncio.sleep(2 * LONG_AGO)


async def shrink(world: World) -> None:
    """Four pods, then few requests."""
    scaling = {
        "minReplicas": 1,
        "maxReplicas": 4,
        "qps": {"target": 60},
        "cooldown": "10s",
        "stabilizationWindow": "10s",
        "scaleDown": {"maxPercent": 100},
    }
    world.demand.qps = 200.0
    await world.declare("v1", "v1", autoscaling=scaling)
    await asyncio.sleep(120.0)
    world.demand.qps = 100.0
    await asyncio.sleep(60.0)


async def meddle(world: World) -> None:
    """Somebody changes the same object twice."""
    await world.declare("v1", "v1", autoscaling=ALONE)
    await asyncio.sleep(LONG_AGO)
    for _ in range(2):
        await drift(world)


async def drift(world: World) -> None:
    """Somebody changes the Service."""
    path = f"/api/v1/namespaces/{world.namespace}/services/{NAME}"
    body = {"spec": {"selector": {"slipway.dev/model-deployment": "another"}}}
    await world.api.ask("PATCH", path, body, content_type="application/merge-patch+json")
    await asyncio.sleep(LONG_AGO)


async def meddle_later(world: World) -> None:
    """The same happens again to the operator's next process."""
    await world.declare("v1", "v1", autoscaling=ALONE)
    await asyncio.sleep(LONG_AGO)
    await drift(world)
    world.operators[0].kill()
    await asyncio.sleep(LONG_AGO)
    await drift(world)
