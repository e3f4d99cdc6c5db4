"""kill -9 of the operator in the middle of a rollout: the same outcome, nothing skipped, no request lost."""

import pytest

from tests.integration.bench import failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

STAGES = ("Starting", "Exposing", "Shifting", "Observing", "Promoting")
STEPS = {"rollout": {"steps": [{"weight": 25, "hold": "2s"}, {"weight": 50, "hold": "1s"}], "keepPrevious": "0s"}}


async def test_a_killed_operator_goes_on_where_it_was(bench, operator):
    """One rollout after the other between two versions; in each the operator dies at another stage."""
    versions = {"v1": bench.version("v1"), "v2": bench.version("v2", "good-2")}
    await bench.apply(bench.declare("m", *versions.values(), serve="v1", **STEPS))
    await bench.serving("m")
    async with bench.load("m") as answers:
        for number, stage in enumerate(STAGES):
            target = "v1" if number % 2 else "v2"
            begun = len(answers)
            await bench.apply(bench.declare("m", *versions.values(), serve=target, **STEPS))
            await bench.until("m", f"{target} is {stage}", in_stage(target, stage))
            await operator.kill()
            async with bench.timeline("m") as timeline:
                await operator.start()
                status = await bench.finished("m", target, "Promoted")
            assert failures(answers[begun:]) == [], stage
            assert status["stable"] == target, stage
            assert status["rollout"]["id"] == f"r-{number + 2:06d}", stage
            steps = [look.rollout["step"] for look in timeline.looks]
            assert steps == sorted(steps), stage
            if stage in STAGES[:3]:
                assert {25, 50, 100} <= {look.weight(target) for look in timeline.looks}, stage
    history = [(entry["to"], entry["outcome"]) for entry in (await bench.status("m"))["history"]]
    assert history == [(version, "Promoted") for version in ("v1", "v2", "v1", "v2", "v1", "v2")]


def in_stage(version, stage):
    """Whether that version's rollout is at this stage now."""
    return lambda s: (s["rollout"]["to"], s["rollout"]["stage"]) == (version, stage)
