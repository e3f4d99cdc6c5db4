"""A mesh that learns late: nothing is sent to where no proxy knows the way, and nothing fails."""

import pytest

from e2e.sandbox.cluster import Sandbox
from tests.integration.bench import failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

DELAY = 2.0
"""Seconds by which Envoy lags; a real mesh takes a tenth of one, a large one some.

Settle leaves room for a busy machine.
"""


async def test_a_rollout_in_a_mesh_that_lags_behind_fails_no_request(bench, a_cluster):
    if not isinstance(a_cluster, Sandbox):
        return  # no other mesh can be slowed down
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    quick = {"traffic": {"settle": "6s"}, "rollout": {"keepPrevious": "1s", "steps": [{"weight": 50, "hold": "0s"}]}}
    await bench.apply(bench.declare("m", one, **quick))
    await bench.serving("m")
    await a_cluster.set_propagation_delay(DELAY)
    try:
        async with bench.load("m") as answers:
            await bench.apply(bench.declare("m", one, two, serve="v2", **quick))
            await bench.finished("m", "v2", "Promoted")
            await bench.until("m", "v1 is gone", lambda s: [entry["name"] for entry in s["versions"]] == ["v2"])
    finally:
        await a_cluster.set_propagation_delay(0.1)
    assert failures(answers) == []
    assert answers[-1].version == "v2"
