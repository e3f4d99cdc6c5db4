"""Strategy Shadow for real: stable's servers repeat requests to a candidate that serves nobody."""

import aiohttp
import pytest

from e2e.sandbox.controllers.client import PODS
from tests.integration.bench import failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

RATE = 40.0
AGREEMENT = {"name": "agreement", "metric": "shadowAgreement", "minValue": "0.9"}
ROLLOUT = {
    "rollout": {
        "strategy": "Shadow",
        "shadow": {"percent": 100, "compare": "AllClose"},
        "analysis": {"interval": "1s", "checks": [AGREEMENT]},
    }
}


async def test_the_same_model_is_switched_to_and_another_one_never_serves(bench):
    one, same, other = bench.version("v1"), bench.version("v2"), bench.version("v3", "good-2")
    await bench.apply(bench.declare("m", one, **ROLLOUT))
    await bench.serving("m")
    await no_user_escapes_the_count(bench)
    async with bench.load("m", RATE) as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, same, serve="v2", **ROLLOUT))
        status = await bench.finished("m", "v2", "Promoted")
        (check,) = status["analysis"]
        assert check["candidate"]["requests"] > 20
        assert check["candidate"].get("bad", 0) == 0
        assert check["stable"]["requests"] > 0
        await bench.serving("m", "v2")
        before = len(answers)
        await bench.apply(bench.declare("m", one, same, other, serve="v3", **ROLLOUT))
        status = await bench.finished("m", "v3", "RolledBack")
        (check,) = status["analysis"]
        assert (check["verdict"], check["reason"]) == ("Harmful", "HarmDetected")
        assert check["candidate"]["bad"] > 0.9 * check["candidate"]["requests"]
        assert check["stable"].get("bad", 0) == 0
    assert failures(answers) == []
    assert {answer.version for answer in answers[before:]} <= {"v1", "v2"}
    weights = [look.weight("v2") for look in timeline.looks if look.rollout.get("to") == "v2"]
    assert set(weights) <= {0, 100}


async def no_user_escapes_the_count(bench):
    """The header that marks repeated requests does not get through the mesh."""
    body = {"inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.1] * 64}]}
    headers = {"Host": bench.host("m"), "x-slipway-shadow": "true"}
    (pod,) = await bench.items(PODS)
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{bench.cluster.gateway_url}/v2/models/m/infer", json=body, headers=headers) as answer:
            assert answer.status == 200

        async def counted():
            """Requests by what is said of them; one is counted when it has been answered."""
            async with session.get(f"http://{pod['status']['podIP']}:8080/metrics") as answer:
                lines = (await answer.text()).splitlines()
            samples = [line.rpartition(" ") for line in lines if line.startswith("slipway_requests_total")]
            users, shadows = (
                sum(float(value) for name, _, value in samples if f'shadow="{shadow}"' in name)
                for shadow in ("false", "true")
            )
            return users + shadows > 0 and (users, shadows)

        assert await bench.eventually("the request is counted", counted) == (1, 0)
