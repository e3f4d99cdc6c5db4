"""The demo as a user starts it, with its summary held against what it promises."""

import asyncio
import json
import os
import sys

import pytest

from e2e.sandbox.children import REPOSITORY_ROOT

pytestmark = pytest.mark.e2e

DEMO_SECONDS = 1500
"""The demo takes three minutes; a slow and busy machine is given more."""


@pytest.mark.timeout(DEMO_SECONDS + 60)
async def test_the_demo_ends_well(tmp_path):
    summary_file, picture = tmp_path / "summary.json", tmp_path / "demo.png"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "e2e.demo", "--json", str(summary_file), "--picture", str(picture)),
        cwd=REPOSITORY_ROOT,
        env={**os.environ, "TERM": "dumb"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(DEMO_SECONDS):
        output, _ = await process.communicate()
    text = output.decode(errors="replace")
    assert process.returncode == 0, text[-6000:]
    summary = json.loads(summary_file.read_text())
    assert summary["faults"] == []
    assert summary["sent"] > 1000
    assert summary["failed_before_broken"] == 0
    assert summary["failed_by_others"] == 0
    assert summary["promoted"]
    assert summary["rolled_back"]
    assert {share["weight"] for share in summary["shares"] if share["version"] == "v2"} == {5, 25, 50}
    assert summary["most_replicas"] >= 3
    assert 0 < summary["harm_to_zero_seconds"] < 60
    assert picture.stat().st_size > 10_000
