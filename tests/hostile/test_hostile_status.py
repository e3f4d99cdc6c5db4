"""Status and specs at their worst: what others wrote there, what is as long as it may be, and who may write at all."""

import asyncio
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.world import KEY, World, versions
from tests.hostile.specimens import STATUS, Author, Gate, model_deployment

GATE = Gate()
SPEC = versions("v1", "v2", serve="v1")
OBJECTS = f"/apis/slipway.dev/v1alpha1/namespaces/{KEY.namespace}/modeldeployments"
ETCD_LIMIT = 1024 * 1024


def garbled(seed: int) -> dict[str, Any]:
    """A status that the schema allows and no operator would write."""
    author = Author(Random(seed), readable=seed % 4 > 0)
    status = author.object(STATUS, fill=0.6)
    spec = GATE.admit(model_deployment(SPEC, status=status))
    return status if not spec[1] else {}


def test_garbled_statuses_pass_the_schema() -> None:
    """The test below would prove nothing if they did not."""
    assert sum(bool(garbled(seed)) for seed in range(40)) > 20


@given(st.integers(0, 2**32))
@settings(max_examples=40)
def test_whatever_stands_in_status_the_stable_version_is_served_in_the_end(seed: int) -> None:
    status = garbled(seed)

    async def play() -> World:
        world = World()
        world.declare(SPEC)
        await world.settle()
        serving = world.status
        assert serving["stable"] == "v1"
        stored = world.api.get("modeldeployments", *KEY)
        world.api.put({**stored, "status": status})
        await world.settle(rounds=300)
        return world

    world = asyncio.run(play())
    assert GATE.admit(model_deployment(SPEC, status=world.status))[1] == []
    weights = {entry["name"]: entry["weight"]["intended"] for entry in world.status["versions"]}
    assert sum(weights.values()) == 100
