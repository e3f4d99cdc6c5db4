"""The command line as a person uses it: see where a rollout stands, let it go on, read its history."""

import asyncio
import json
import sys
from typing import Any

import pytest

from tests.integration.bench import Bench

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def slipway(bench: Bench, *arguments: str) -> tuple[int, str]:
    """Run a command in the test's namespace; its exit status and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipway.cli", "--kubeconfig", str(bench.cluster.kubeconfig)),
        *("-n", bench.namespace, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_a_paused_rollout_is_understood_and_promoted_from_the_command_line(bench: Bench, tmp_path) -> None:
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    rollout: dict[str, Any] = {"rollout": {"steps": [{"weight": 20, "pause": {}}]}}
    await bench.apply(bench.declare("m", one, **rollout))
    await bench.serving("m")
    file = tmp_path / "m.yaml"
    file.write_text(json.dumps(bench.declare("m", one, two, serve="v2", **rollout)))

    status, text = await slipway(bench, "diff", "-f", str(file))
    assert status == 1, text
    assert "a rollout from v1 to v2 begins: 20 % until somebody promotes" in text
    await bench.apply(json.loads(file.read_text()))
    await bench.until("m", "it waits", lambda s: (s.get("rollout") or {}).get("reason") == "AwaitingPromotion")
    assert (await slipway(bench, "diff", "-f", str(file)))[0] == 0

    status, text = await slipway(bench, "status", "m")
    assert status == 0
    for words in ("m in", "Paused (AwaitingPromotion)", "v2       Candidate  20 %", "slipway promote m"):
        assert words in text, text
    status, text = await slipway(bench, "promote", "m", "--wait", "--by", "ann", "--reason", "looks good")
    assert (status, text.split(":")[1].strip()) == (0, "Accepted"), text
    await bench.finished("m", "v2", "Promoted")
    await bench.serving("m", "v2")
    status, text = await slipway(bench, "history", "m", "-o", "json")
    assert [(entry["to"], entry["outcome"]) for entry in json.loads(text)] == [("v1", "Promoted"), ("v2", "Promoted")]
