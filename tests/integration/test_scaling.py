"""Replicas that follow the load, and other scalers on the same Deployments."""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Callable

import pytest

from e2e.sandbox.controllers.client import DEPLOYMENTS, MERGE_PATCH, Resource
from tests.integration.bench import MODEL_DEPLOYMENTS, Bench, Status, condition, failures
from tests.integration.operators import Operator

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

AUTOSCALERS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
QUICK = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "qps": {"target": 10},
    "gpuUtilization": {"target": 0},
    "queueTime": {"upper": "0s"},
    "cooldown": "2s",
    "stabilizationWindow": "5s",
    "scaleDown": {"maxPercent": 100},
}
"""Down in seconds, and on nothing but requests per second: other processes on this machine must not decide."""


def replicas(status: Status) -> tuple[int, int]:
    """Wanted and ready replicas of the only version."""
    (entry,) = status["versions"]
    return entry["replicas"], entry["readyReplicas"]


def ready(number: int) -> Callable[[Status], bool]:
    """Whether so many replicas are wanted and ready."""
    return lambda status: replicas(status) == (number, number)


async def explanation(bench: Bench) -> str:
    """What ``slipway explain`` says, with its test of the metrics."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "slipway.cli", "-n", bench.namespace, "explain", "m"),
        *("--prometheus-url", bench.cluster.prometheus_url),
        env={**os.environ, "KUBECONFIG": str(bench.cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_replicas_follow_a_load_that_doubles_three_times_and_stops(bench: Bench) -> None:
    await bench.apply(bench.declare("m", autoscaling=QUICK))
    await bench.serving("m")
    answered = []
    async with contextlib.AsyncExitStack() as loads:
        answered.append(await loads.enter_async_context(bench.load("m", 4.5)))
        await bench.until("m", "metrics are seen", lambda s: "qps" in s["versions"][0])
        assert replicas(await bench.status("m"))[0] == 1
        for more, wanted in ((4.5, 1), (9.0, 2), (18.0, 4)):
            answered.append(await loads.enter_async_context(bench.load("m", more)))
            await bench.until("m", f"{wanted} are ready", ready(wanted), 300.0)

        async def measured() -> str:
            """The explanation, once the newest pods have been scraped twice: a rate needs two scrapes."""
            explained = await explanation(bench)
            return explained if re.search(r"arrivals: \d", explained) else ""

        explained = await bench.eventually("the arrivals of all pods are measured", measured)
        assert "ready pods are in the metrics" in explained
        assert re.search(r"mesh: \d", explained), explained
    status = await bench.until("m", "one is left", ready(1), 300.0)
    assert [answer for answers in answered for answer in failures(answers)] == []
    assert sum(map(len, answered)) > 100
    decisions = status["scaling"]
    for item in decisions:
        print(f"{item['from']} to {item['to']}  {item['reason']}  {item['message']}")
    print(f"{sum(map(len, answered))} requests, {sum(len(failures(answers)) for answers in answered)} failed")
    ups = [item for item in decisions if item["to"] > item["from"] > 0]
    downs = [item for item in decisions if item["to"] < item["from"]]
    assert {item["reason"] for item in ups} <= {"ScaledUpDemand", "ScaledUpBacklog"}
    assert {item["reason"] for item in downs} == {"ScaledDown"}
    assert all("requests/s" in item["message"] for item in (*ups, *downs))


async def test_somebody_elses_autoscaler_is_refused_and_our_own_is_followed(bench: Bench, operator: Operator) -> None:
    quiet = QUICK | {"maxReplicas": 3, "qps": {"target": 1000}}
    await bench.apply(bench.declare("m", autoscaling=quiet))
    await bench.serving("m")
    revision = (await bench.status("m"))["versions"][0]["revision"]
    foreign = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "by-hand", "namespace": bench.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": revision},
            "minReplicas": 2,
            "maxReplicas": 5,
        },
    }
    await bench.client.request("POST", AUTOSCALERS.path(bench.namespace), foreign)

    def scaling(status: Status) -> tuple[str, str]:
        found = condition(status, "ScalingActive")
        return found.get("status", ""), found.get("reason", "")

    status = await bench.until("m", "the conflict is told", lambda s: scaling(s) == ("False", "ScalerConflict"))
    assert "HorizontalPodAutoscaler by-hand" in condition(status, "ScalingActive")["message"]
    await bench.delete(AUTOSCALERS, "by-hand")
    await bench.until("m", "it is over", lambda s: scaling(s)[1] != "ScalerConflict")

    await bench.patch("m", {"autoscaling": {"mode": "HPA"}})
    await bench.until("m", "the mode has changed", lambda s: scaling(s) == ("True", "SetByHPA"))
    written = await bench.eventually(
        "our autoscaler is written", lambda: bench.client.find(AUTOSCALERS, bench.namespace, revision)
    )
    assert (written["spec"]["minReplicas"], written["spec"]["maxReplicas"]) == (1, 3)
    assert written["metadata"]["ownerReferences"][0]["kind"] == MODEL_DEPLOYMENTS.kind
    scale = DEPLOYMENTS.path(bench.namespace, revision, "scale")
    await bench.client.request("PATCH", scale, {"spec": {"replicas": 2}}, content_type=MERGE_PATCH)
    await bench.until("m", "the number is followed", lambda s: replicas(s)[0] == 2)
    # The API server says 1k for the 1000 of the target; that is nobody's edit.
    assert written["spec"]["metrics"][0]["external"]["target"]["averageValue"] == "1k"
    told = [line for line in operator.log().splitlines() if bench.namespace in line and "by somebody else" in line]
    assert told == []

    await bench.patch("m", {"autoscaling": {"mode": "Operator"}})

    async def gone() -> bool:
        return await bench.client.find(AUTOSCALERS, bench.namespace, revision) is None

    await bench.eventually("our autoscaler is removed", gone)
