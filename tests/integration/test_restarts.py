"""kill -9 of the operator in the middle of a rollout: the same outcome, nothing skipped, no request lost."""

import pytest

from tests.integration.bench import failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

STAGES = ("Starting", "Exposing", "Shifting", "Observing", "Promoting")
STEPS = {"rollout": {"steps": [{"weight": 25, "hold": "1s"}, {"weight": 50, "hold": "1s"}], "keepPrevious": "0s"}}


async def test_a_killed_operator_goes_on_where_it_was(bench, operator):
    """One rollout after the other; in each the operator dies at another stage."""
    versions = [bench.version(f"v{number}", f"good-{1 + number % 2}") for number in range(1, len(STAGES) + 2)]
    await bench.apply(bench.declare("m", *versions, serve="v1", **STEPS))
    await bench.serving("m")
    async with bench.load("m") as answers:
        for number, stage in enumerate(STAGES, start=2):
            target = f"v{number}"
            begun = len(answers)
            async with bench.timeline("m") as timeline:
                await bench.apply(bench.declare("m", *versions, serve=target, **STEPS))
                await bench.until("m", f"{target} is {stage}", in_stage(target, stage))
                await operator.kill()
                await operator.start()
                status = await bench.finished("m", target, "Promoted")
            lost = failures(answers[begun:])
            print(f"killed while {stage}: {len(answers) - begun} requests, {len(lost)} failed; {target} promoted")
            assert lost == [], stage
            assert status["stable"] == target, stage
            assert status["rollout"]["id"] == f"r-{number:06d}", stage
            looks = [look for look in timeline.looks if look.rollout["to"] == target]
            steps = [look.rollout["step"] for look in looks]
            assert steps == sorted(steps), stage
            assert {25, 50, 100} <= {look.weight(target) for look in looks}, stage
    history = [(entry["to"], entry["outcome"]) for entry in (await bench.status("m"))["history"]]
    assert history == [(version, "Promoted") for version in ("v1", "v2", "v3", "v4", "v5", "v6")]


def in_stage(version, stage):
    """Whether that version's rollout is at this stage now."""
    return lambda s: (s["rollout"]["to"], s["rollout"]["stage"]) == (version, stage)
