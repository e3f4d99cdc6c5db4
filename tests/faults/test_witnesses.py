"""What watches over the trials must be able to say no."""

import asyncio
import json

from slipway.kube.kinds import DEPLOYMENT, POD, VIRTUAL_SERVICE

from e2e.faults import virtual_time
from e2e.faults.api import Api
from e2e.faults.world import NAME, Wall, World


def seen(play):
    """Everything that a world finds fault with once `play` has been done to v1 that serves."""

    async def work():
        wall = Wall()
        api = Api(wall)
        await api.start()
        async with World.of(api, wall) as world:
            world.operator()
            await world.declare("v1", "v1")
            await world.finished("v1", "Promoted", alone="v1")
            world.mesh.armed = True
            await play(world)
            await asyncio.sleep(1.0)
            return world.faults()

    return virtual_time.run(work())


def test_weights_without_pods_are_lost_requests():
    async def play(world):
        for pod in world.api.objects(POD, world.namespace):
            world.api.drop(POD, pod)

    assert any("with ready pods of" in one for one in seen(play))


def test_a_subset_that_the_rule_lacks_is_a_lost_request():
    async def play(world):
        route = world.api.find(VIRTUAL_SERVICE, world.namespace, NAME)
        revision = world.api.objects(DEPLOYMENT)[0]["metadata"]["name"]
        world.api.put(VIRTUAL_SERVICE, json.loads(json.dumps(route).replace(revision, "elsewhere")))

    assert any("with subsets" in one for one in seen(play))


def test_a_step_that_is_left_out_is_seen():
    async def play(world):
        world.statuses += [{"rollout": {"id": "r", "step": 1}}, {"rollout": {"id": "r", "step": 3}}]

    assert seen(play) == ["from step 1 to 3"]


def test_a_window_that_is_counted_twice_is_seen():
    async def play(world):
        check = {"rollout": "r", "window": "2026-01-01T00:00:10Z", "windows": 1, "candidate": {"requests": 0}}
        world.statuses += [{"analysis": [check]}, {"analysis": [check | {"windows": 2}]}]

    assert seen(play) == ["1 windows counted within 0 s"]


def test_more_requests_than_were_served_are_seen():
    async def play(world):
        check = {"rollout": "r", "window": "2026-01-01T00:00:10Z", "windows": 1, "candidate": {"requests": 900}}
        stable = world.status["versions"][0]["revision"]
        world.statuses += [{"rollout": {"id": "r", "fromRevision": stable}, "analysis": [check]}]

    assert seen(play) == ["r: 900 requests counted, 0.0 served"]
