"""Requests to the operator: ``status.action`` with its answers, and approval by ``rollout.approvedVersion``."""

import pytest

from e2e.sandbox.controllers.client import MERGE_PATCH
from tests.integration.bench import MODEL_DEPLOYMENTS, condition, failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

STEPS = {"rollout": {"steps": [{"weight": 20, "pause": {}}, {"weight": 50, "hold": "1s"}]}}


async def result_of(bench, verb, **more):
    """The operator's answer to a verb."""
    answer = await bench.act("m", verb, **more)
    assert answer["verb"] == verb
    return answer["result"], answer["message"]


async def waits_for_promotion(bench):
    """Wait until the rollout stands at its first step, which only a person ends."""
    status = await bench.until(
        "m", "a wait for promotion", lambda s: (s.get("rollout") or {}).get("reason") == "AwaitingPromotion"
    )
    assert (status["phase"], status["rollout"]["step"], status["weight"]) == ("Paused", 1, 20)


async def test_every_verb_has_its_effect_and_its_answer(bench):
    versions = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", *versions, serve="v1", **STEPS))
    await bench.serving("m")
    assert await result_of(bench, "Promote") == ("Ignored", "no rollout is in progress")
    async with bench.load("m") as answers:
        await bench.patch("m", {"serve": "v2"})
        await waits_for_promotion(bench)

        assert await result_of(bench, "Abort", reason="lunch") == ("Accepted", "traffic goes back to v1")
        status = await bench.finished("m", "v2", "Aborted")
        assert (status["history"][-1]["outcome"], status["history"][-1]["by"]) == ("Aborted", "tests")
        assert condition(status, "Stalled")["reason"] == "Aborted"
        assert (await bench.status("m"))["weight"] == 0

        assert await result_of(bench, "Retry") == ("Accepted", "v2 is tried again from the first step")
        await waits_for_promotion(bench)
        assert (await result_of(bench, "Pause"))[0] == "Accepted"
        await bench.until("m", "the pause", lambda s: s["rollout"]["reason"] == "Paused")
        assert await result_of(bench, "Pause") == ("Ignored", "the rollout is paused already")
        assert await result_of(bench, "Resume") == ("Accepted", "the rollout goes on")
        await waits_for_promotion(bench)
        refused, words = await result_of(bench, "Explode")
        assert refused == "Refused"
        assert "unknown verb 'Explode'; use one of Promote" in words

        assert await result_of(bench, "Promote") == ("Accepted", "step 1 of 2 is approved")
        await bench.finished("m", "v2", "Promoted")
        last = (await bench.serving("m", "v2"))["lastAction"]
        path = MODEL_DEPLOYMENTS.path(bench.namespace, "m", "status")
        again = {"status": {"action": {"id": last["id"], "verb": "Abort", "by": "tests"}}}
        await bench.client.request("PATCH", path, again, content_type=MERGE_PATCH)
        await bench.patch("m", {"rollout": {"keepPrevious": "3s"}})
        status = await bench.until("m", "the edit is seen", lambda s: s["observedGeneration"] == 3)
        assert status["lastAction"] == last
    assert failures(answers) == []


async def test_promote_full_skips_steps_and_approved_version_promotes(bench):
    versions = [bench.version("v1"), bench.version("v2", "good-2"), bench.version("v3")]
    rollout = {"steps": [{"weight": 20, "hold": "1s"}], "promotion": "Manual"}
    await bench.apply(bench.declare("m", *versions, serve="v1", rollout=rollout))
    await bench.serving("m")
    await bench.patch("m", {"serve": "v2"})
    await waits_for_promotion(bench)
    assert await result_of(bench, "PromoteFull") == ("Accepted", "the remaining steps of v2 are skipped")
    await bench.finished("m", "v2", "Promoted")
    await bench.patch("m", {"serve": "v3"})
    await waits_for_promotion(bench)
    await bench.patch("m", {"rollout": {"approvedVersion": "v3"}})
    await bench.finished("m", "v3", "Promoted")
    await bench.serving("m", "v3")
