"""Strategy Shadow for real: stable's servers repeat requests to a candidate that serves nobody."""

import pytest

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
