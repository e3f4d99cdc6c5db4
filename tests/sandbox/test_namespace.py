"""Pods outside 127.0.0.0/8, in a network namespace, as a real API server needs them."""

import os
import subprocess
import sys
from pathlib import Path

from e2e.sandbox.node.namespace import is_inside

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import asyncio, sys
from pathlib import Path
from e2e.sandbox.cluster import Sandbox
from e2e.sandbox.node.namespace import is_inside
from tests.sandbox.bench import Bench, echo

async def main():
    assert is_inside()
    async with Sandbox(Path(sys.argv[1]), pod_range="10.244.0.0/16", telemetry=False) as sandbox:
        async with sandbox.client() as client:
            bench = Bench(client, "default", sandbox)
            await bench.deploy(echo("web"))
            (pod,) = await bench.ready_pods("web", 1)
            print(pod["status"]["podIP"])

asyncio.run(main())
"""


def test_a_whole_sandbox_runs_in_a_network_namespace(tmp_path):
    assert not is_inside()
    argv = [sys.executable, "-m", "e2e.sandbox.node.namespace", sys.executable, "-c", PROGRAM, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "10.244.1.1"
