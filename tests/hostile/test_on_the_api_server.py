"""Hostile objects in the sandbox's API server: what comes of them is taken, or a condition says why not."""

import asyncio
import re

from slipway.kube.kinds import DEPLOYMENT
from slipway.kube.transport import Answer, Call

from e2e.faults.api import Api
from tests.engine.world import KEY, World
from tests.hostile.specimens import model_deployment, spec_of

OBJECTS = f"/apis/slipway.dev/v1alpha1/namespaces/{KEY.namespace}/modeldeployments"
SEEDS = range(1000, 1022)
REFUSAL = re.compile(r"the API server refuses \w+ [a-z0-9-]+: .*\b(spec|metadata)\b", re.DOTALL)
NAMED = re.compile(r"(spec|metadata)[.A-Za-z]*")
LOOKS = 4


class Direct:
    """The operator's transport, straight into the server."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def send(self, call: Call) -> Answer:
        return await self.api.answer(call)

    async def close(self) -> None:
        pass


async def seen(api: Api, seed: int) -> str:
    """What became of an object: how it is named here says which of the allowed ends it came to."""
    sent = model_deployment(spec_of(seed))
    sent["metadata"] = {"name": KEY.name}
    answer = await api.answer(Call("POST", OBJECTS, (), sent))
    assert answer.status in (201, 422, 400), answer.body
    if answer.status != 201:
        return "refused"
    world = World(api=Direct(api))  # type: ignore[arg-type]
    for _ in range(LOOKS):
        await world.reconcile()
        world.now += 6.0
    status = (await api.ask("GET", f"{OBJECTS}/{KEY.name}"))["status"]
    conditions = {item["type"]: item for item in status["conditions"]}
    await api.ask("DELETE", f"{OBJECTS}/{KEY.name}")
    if conditions["Ready"]["reason"] in ("InvalidSpec", "NotYetSupported"):
        assert NAMED.match(conditions["Ready"]["message"])
        return "invalid"
    if conditions["Ready"]["reason"] == "Suspended":
        return "suspended"
    refusals = [event.message for event in world.events if event.reason == "ApplyRefused"]
    if refusals:
        assert all(REFUSAL.search(text) for text in refusals), refusals
        said = [item["message"] for item in conditions.values()] + [
            one.get("message", "") for one in status["versions"]
        ]
        assert any("refuses" in text for text in said), (refusals, said)
        return "refused children"
    assert api.objects(DEPLOYMENT, KEY.namespace), status
    return "applied"


def test_children_are_taken_or_a_condition_says_why_not() -> None:
    async def play() -> list[str]:
        ends = []
        api = Api(lambda: 1_767_225_600.0)
        await api.start()
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": KEY.namespace}})
        empty = api.backup()
        for seed in SEEDS:
            ends.append(await seen(api, seed))
            api.restore(empty)
        return ends

    ends = asyncio.run(play())
    assert {"refused", "invalid", "applied", "refused children"} <= set(ends), ends
