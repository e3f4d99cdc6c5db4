"""Rollouts under load: promotion and rollback on evidence, shares as promised, and no request lost."""

import time

import pytest

from e2e.demo.summary import shares
from tests.integration.bench import condition, failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

RATE = 50.0
STEPS = [{"weight": weight, "hold": "6s"} for weight in (5, 25, 50)]
ERRORS = {"name": "errors", "metric": "errorRate", "maxRatio": 1.5, "maxValue": "0.3"}
"""Wide bounds, so that some dozens of requests are enough for a verdict."""


async def test_a_good_version_is_promoted_step_by_step_without_a_failed_request(bench):
    analysis = {"interval": "1s", "checks": [ERRORS]}
    rollout = {"traffic": {"settle": "2s"}, "rollout": {"steps": STEPS, "analysis": analysis}}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, **rollout))
    await bench.serving("m")
    async with bench.load("m", RATE) as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, two, serve="v2", **rollout))
        status = await bench.finished("m", "v2", "Promoted")
        await bench.serving("m", "v2")
    assert failures(answers) == []
    seen = {share.weight: share for share in shares(timeline.looks, answers)}
    print(*seen.values(), f"{len(answers)} requests, {len(failures(answers))} failed", sep="\n")
    assert set(seen) == {5, 25, 50}
    assert [str(share) for share in seen.values() if not share.fits] == []
    (check,) = status["analysis"]
    assert check["verdict"] == "Safe"
    assert check["candidate"]["requests"] > 0
    weights = [look.weight("v2") for look in timeline.looks if look.rollout.get("to") == "v2"]
    assert weights == sorted(weights)
    assert answers[-1].version == "v2"
    assert [(item["to"], item["outcome"]) for item in status["history"]] == [("v1", "Promoted"), ("v2", "Promoted")]

    async def old_pods_gone() -> bool:
        return {entry["name"] for entry in (await bench.status("m"))["versions"]} == {"v2"}

    await bench.eventually("v1 is scaled down", old_pods_gone)


async def test_a_failing_version_is_rolled_back_and_everything_else_is_answered(bench):
    analysis = {"interval": "1s", "checks": [ERRORS]}
    rollout = {"rollout": {"steps": [{"weight": 20, "hold": "30s"}], "analysis": analysis}}
    one, two = bench.version("v1"), bench.version("v2", "failing")
    await bench.apply(bench.declare("m", one, **rollout))
    await bench.serving("m")
    async with bench.load("m", RATE) as answers:
        await bench.apply(bench.declare("m", one, two, serve="v2", **rollout))
        status = await bench.finished("m", "v2", "RolledBack")
        over = time.time()
        await bench.until("m", "v2 is gone", lambda s: [entry["name"] for entry in s["versions"]] == ["v1"])
    assert {answer.version for answer in failures(answers)} == {"v2"}
    assert failures([answer for answer in answers if answer.at > over]) == []
    assert (status["stable"], status["candidate"], status["weight"]) == ("v1", "", 0)
    assert status["rollout"]["reason"] in ("HarmDetected", "ErrorBurst"), status["rollout"]
    stalled = condition(await bench.status("m"), "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "RolledBack")
    assert "v2" in stalled["message"]
    assert await bench.infer("m") == (200, "v1")
