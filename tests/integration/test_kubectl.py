"""A user with kubectl: what is printed during a rollout and afterwards."""

import asyncio
import json

import pytest

from tests.integration.bench import PATIENCE

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def succeeds(bench, *arguments, stdin=""):
    """What kubectl prints; it must end well."""
    code, text = await bench.kubectl(*arguments, stdin=stdin)
    assert code == 0, text
    return text


async def next_row(watch):
    """The words of the next line that a kubectl at work prints."""
    async with asyncio.timeout(PATIENCE):
        return (await watch.stdout.readline()).decode().split()


async def test_a_rollout_as_kubectl_shows_it(bench):
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    text = await succeeds(bench, "apply", "-f", "-", stdin=json.dumps(bench.declare("m", one, serve="v1")))
    assert text == "modeldeployment.slipway.dev/m created\n"
    text = await succeeds(bench, "wait", "mdep/m", "--for=condition=Ready", "--timeout=180s")
    assert text == "modeldeployment.slipway.dev/m condition met\n"
    wanted = json.dumps(bench.declare("m", one, two, serve="v2"))
    code, text = await bench.kubectl("diff", "-f", "-", stdin=wanted)
    assert code == 1
    assert "+  serve: v2" in text

    watch = await bench.start_kubectl("get", "mdep", "m", "-w")
    shown = [await next_row(watch), await next_row(watch)]
    await succeeds(bench, "apply", "-f", "-", stdin=wanted)
    await bench.finished("m", "v2", "Promoted")
    await bench.serving("m", "v2")
    await succeeds(bench, "wait", "mdep/m", "--for=condition=Ready", "--timeout=180s")
    while shown[-1][1:4] != ["True", "Ready", "v2"]:
        shown.append(await next_row(watch))
    watch.terminate()
    await watch.communicate()
    header, *rows = shown
    assert header == ["NAME", "READY", "PHASE", "STABLE", "CANDIDATE", "WEIGHT", "REPLICAS", "AGE"]
    phases = [row[2] for row in rows]
    assert phases[0] == "Ready"
    assert {"Progressing", "Promoting"} <= set(phases)
    assert any(row[3:6] == ["v1", "v2", "50"] for row in rows), rows

    code, text = await bench.kubectl("diff", "-f", "-", stdin=wanted)
    assert (code, text) == (0, "")

    parts = ("Serve:", "Phase:", "Ready", "Conditions:", "Events:", "Promoted", "StepReached")

    async def described():
        """Events are posted beside the work."""
        text = await succeeds(bench, "describe", "mdep", "m")
        return all(part in text for part in parts)

    await bench.eventually("a description with everything", described)
    text = await succeeds(bench, "get", "mdep", "m", "-o", "jsonpath={.status.history[*].outcome}")
    assert text == "Promoted Promoted"


async def test_fields_explain_themselves(bench):
    text = await succeeds(bench, "explain", "mdep.spec.rollout.analysis")
    assert "KIND:       ModelDeployment" in text
    assert "FIELD: analysis <Object>" in text
    for part in ("alpha", "<number>", "Chance that a healthy candidate is ever rolled back", "maxDuration", "checks"):
        assert part in text, text
    text = await succeeds(bench, "explain", "modeldeployments.spec.autoscaling.qps.target")
    assert "target" in text
