"""The arithmetic of the operator's load measurement."""

import math
import os

import pytest

from e2e.bench.operator_load.bare import copies
from e2e.bench.operator_load.figures import Exposition, histogram_quantile, percentile, usage_of
from e2e.bench.operator_load.image import PINS, absent_packages
from e2e.bench.operator_load.report import Report, Rolling, text
from e2e.sandbox.controllers.client import DEPLOYMENTS, SERVICES

PAGE = """# HELP slipway_operator_api_requests_total Calls
slipway_operator_api_requests_total{code="200",method="GET",resource="modeldeployments"} 7.0
slipway_operator_api_requests_total{code="409",method="GET",resource="modeldeployments"} 1.0
slipway_operator_api_requests_total{code="200",method="PUT",resource="leases"} 50.0
slipway_operator_reconcile_duration_seconds_bucket{le="0.1"} 3.0
slipway_operator_reconcile_duration_seconds_bucket{le="+Inf"} 4.0
slipway_operator_leader 1.0
slipway_operator_reconciles_total{result="ok"} 11.0
slipway_operator_reconciles_total{result="conflict"} 2.0
"""


def test_calls_are_counted_over_codes_and_without_the_lease() -> None:
    assert Exposition(PAGE).requests() == {("GET", "modeldeployments"): 8}


def test_reconciles_are_counted_however_they_ended() -> None:
    assert Exposition(PAGE).reconciles() == 13


def test_buckets_are_read_with_their_bounds() -> None:
    assert Exposition(PAGE).buckets("slipway_operator_reconcile_duration_seconds") == {0.1: 3.0, math.inf: 4.0}


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.1), (0.9, 0.5), (1.0, math.inf)])
def test_a_quantile_is_that_of_what_was_added(share: float, bound: float) -> None:
    before = {0.1: 100.0, 0.5: 100.0, math.inf: 100.0}
    after = {0.1: 106.0, 0.5: 109.0, math.inf: 110.0}
    assert histogram_quantile(before, after, share) == bound


def test_the_operator_is_measured_without_what_its_image_lacks() -> None:
    absent = absent_packages(PINS.read_text())
    assert absent >= {"kubernetes_validate", "orjson", "pytest"}
    assert absent.isdisjoint({"slipway", "kopf", "kubernetes", "aiohttp", "numpy", "dateutil"})


def test_of_nothing_there_is_no_quantile() -> None:
    assert math.isnan(histogram_quantile({}, {0.1: 0.0}, 0.5))
    assert math.isnan(percentile([], 0.5))
    assert percentile([3, 1, 2], 0.99) == 3


def test_a_process_uses_memory_and_time() -> None:
    usage = usage_of(os.getpid())
    assert usage.peak > 10
    assert usage.cpu > 0


def test_copies_are_others_objects_of_the_same_content() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "a-0", "namespace": "x", "uid": "u", "resourceVersion": "9", "labels": {"of": "a-0"}},
        "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80}]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a-0-v1", "namespace": "x"},
        "spec": {"replicas": 1},
        "status": {"replicas": 1},
    }
    (_, first), (_, second) = copies([(SERVICES, service), (DEPLOYMENTS, deployment)], "y", "a-0", "b-7")
    assert first == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "b-7", "namespace": "y", "labels": {"of": "b-7"}},
        "spec": {"ports": [{"port": 80}]},
    }
    assert (second["metadata"]["name"], second["spec"], "status" in second) == ("b-7-v1", {"replicas": 1}, False)


def test_a_missed_goal_is_named() -> None:
    report = Report(10, 7, bare=1.0, converged=3.0, idle_writes=0.0, edits=[0.1], peak=100.0, idle_reads=0, idle_cpu=0)
    assert [goal.met for goal in report.goals()] == [False, True, True, True]
    assert "3 x (at most 2: MISSED)" in text(report)


def test_what_a_rollout_takes_is_in_the_table() -> None:
    batches = [Rolling(seconds, 2 * seconds, seconds, seconds / 100) for seconds in (9.0, 11.0, 10.0)]
    report = Report(10, 7, reconciled=55, batches=batches)
    assert "| API calls, reconciles and CPU per rollout | 20.0, 10.0, 0.100 s |" in text(report)
    assert "| reconciles per ModelDeployment | 5.5 |" in text(report)
    assert report.figures()["batches"][0]["reconcilesPerRollout"] == 9.0


def test_an_unknown_figure_is_no_met_goal() -> None:
    assert [goal.met for goal in Report(10, 7).goals()] == [False] * 4
