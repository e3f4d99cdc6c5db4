"""Demand: what came, not what was finished; and what the mesh sends, answered or not."""

import pytest
from slipway.api.samples import Quality
from slipway.api.status import ModelDeploymentStatus, VersionStatus, VersionWeight
from slipway.engine.sizing import total_arrivals

from tests.metrics.prometheus import FakePrometheus, server
from tests.metrics.test_snapshot import NOW, REVISION, TIMES, alive, flat, read, requests, revision

SERVING = ModelDeploymentStatus(
    versions=(VersionStatus(name="v1", revision=REVISION, weight=VersionWeight(intended=100, applied=100)),)
)


async def demand(*series, gateway=None):
    snapshot = await read(FakePrometheus(list(series), gateway=gateway))
    return total_arrivals(SERVING, snapshot.view("nlp", "sentiment"))


async def test_a_growing_queue_is_demand():
    """2 a second are finished, 3 more a second pile up."""
    piling = [(at, 45.0 * n) for n, at in enumerate(TIMES)]
    metrics = await revision(server("p-0", "slipway_requests_in_flight", piling), requests("p-0", 30.0))
    assert metrics.arrivals.value == pytest.approx(5.0)


async def test_a_queue_worked_off_is_no_demand():
    shrinking = [(at, 450.0 - 15.0 * n) for n, at in enumerate(TIMES)]
    metrics = await revision(server("p-0", "slipway_requests_in_flight", shrinking), requests("p-0", 30.0))
    assert metrics.arrivals.value == pytest.approx(1.0)


async def test_a_pod_whose_gauge_is_new_is_not_counted_as_a_burst():
    late = flat(400.0, TIMES[-2:])
    metrics = await revision(
        server("p-0", "slipway_model_ready", flat(1.0)),
        server("p-0", "slipway_requests_in_flight", late),
        requests("p-0", 30.0),
    )
    assert metrics.arrivals.value == pytest.approx(2.0)


async def test_the_mesh_counts_what_no_server_saw():
    assert (await demand(alive("p-0"), requests("p-0", 30.0), gateway=7.0)).value == 7.0
    assert (await demand(alive("p-0"), requests("p-0", 30.0), gateway=1.0)).value == pytest.approx(2.0)
    assert (await demand(alive("p-0"), requests("p-0", 30.0), gateway=float("nan"))).value == pytest.approx(2.0)


async def test_without_any_server_the_mesh_is_a_lower_bound():
    """All pods unready: replicas may grow with what is asked for, and never shrink (k8s #130130)."""
    sample = await demand(gateway=7.0)
    assert (sample.value, sample.quality) == (7.0, Quality.PARTIAL)
    assert (await demand(gateway=0.0)).quality is Quality.MISSING, "nobody asks, but nobody vouches for that either"


async def test_stale_servers_make_the_mesh_a_lower_bound_too():
    sample = await demand(
        alive("p-0", times=[at - 200 for at in TIMES]),
        requests("p-0", 30.0, times=[at - 200 for at in TIMES]),
        gateway=7.0,
    )
    assert (sample.value, sample.quality) == (7.0, Quality.PARTIAL)
    assert sample.at == NOW
