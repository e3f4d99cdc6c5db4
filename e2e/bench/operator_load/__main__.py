"""Does the operator bear a thousand ModelDeployments? ``python -m e2e.bench.operator_load`` (``make bench-operator``).

In one run, on one API server: a bare asyncio client creates the objects that the operator would create; then the
operator does it, from as many ModelDeployments; then each of them is rolled out to its next versions, a hundred at a
time; then nothing happens for a while; then some roll while the others idle. Pods are HOLLOW (simulated, see
hollow.py), there is no mesh and no Prometheus, and rollouts have no checks: what is measured is the operator.

On the sandbox's API server, or on a real one: with ``KUBEBUILDER_ASSETS``, started as
``python -m e2e.sandbox.node.namespace python -m e2e.bench.operator_load``.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

from e2e.bench.operator_load.course import Course, Plan
from e2e.bench.operator_load.hollow import HollowCluster
from e2e.bench.operator_load.report import Report, text
from e2e.sandbox.children import REPOSITORY_ROOT
from e2e.sandbox.cluster import User
from tests.integration.role import OPERATOR


async def _run(plan: Plan) -> Report:
    folder = REPOSITORY_ROOT / ".slipway" / "operator-load"
    shutil.rmtree(folder, ignore_errors=True)
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    async with HollowCluster(
        folder, users=(User(OPERATOR),), assets=Path(assets) if assets else None, mesh=False, telemetry=False
    ) as cluster:
        return await Course(cluster, folder, plan).run()


def main() -> int:
    """Measure and print; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.operator_load", description=__doc__)
    parser.add_argument("--objects", type=int, default=1000, help="ModelDeployments, of three versions each")
    parser.add_argument("--batch", type=int, default=100, help="rollouts at a time")
    parser.add_argument("--batches", type=int, default=10, help="how many such batches")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of steady state")
    parser.add_argument("--at-once", type=int, default=16, help="connections of the bare client")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    chosen = parser.parse_args()
    plan = Plan(chosen.objects, chosen.batch, chosen.batches, chosen.idle, chosen.at_once)
    report = asyncio.run(_run(plan))
    print(text(report))
    if chosen.json:
        chosen.json.write_text(json.dumps(report.figures(), indent=2))
    return 0 if all(goal.met for goal in report.goals()) else 1


if __name__ == "__main__":
    sys.exit(main())
