"""Rollouts under load with the providers beside Istio: the same promises, no request lost."""

import pytest

from e2e.sandbox.controllers.client import Resource
from tests.integration.bench import VIRTUAL_SERVICES, failures

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

HTTP_ROUTES = Resource("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute")
SERVICES = Resource("", "v1", "services", "Service")


async def test_a_canary_over_http_routes(bench):
    traffic = {"provider": "gateway-api"}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, traffic=traffic))
    await bench.serving("m")
    async with bench.load("m") as answers, bench.timeline("m") as timeline:
        await bench.apply(bench.declare("m", one, two, serve="v2", traffic=traffic))
        await bench.finished("m", "v2", "Promoted")
        status = await bench.serving("m", "v2")
    assert failures(answers) == []
    assert {answer.version for answer in answers} == {"v1", "v2"}
    assert 50 in {look.weight("v2") for look in timeline.looks}
    (stable,) = [entry for entry in status["versions"] if entry["role"] == "Stable"]
    assert stable["weight"]["applied"] == 100
    assert {item["metadata"]["name"] for item in await bench.items(HTTP_ROUTES)} == {"m", "m-grpc"}
    assert await bench.items(VIRTUAL_SERVICES) == []


async def test_a_blue_green_switch_of_a_plain_service(bench):
    chosen = {"traffic": {"provider": "none"}, "rollout": {"strategy": "BlueGreen"}}
    one, two = bench.version("v1"), bench.version("v2", "good-2")
    await bench.apply(bench.declare("m", one, **chosen))
    await bench.serving("m")
    async with bench.load("m") as answers:
        await bench.apply(bench.declare("m", one, two, serve="v2", **chosen))
        await bench.finished("m", "v2", "Promoted")
        status = await bench.serving("m", "v2")
    assert failures(answers) == []
    (stable,) = [entry for entry in status["versions"] if entry["role"] == "Stable"]
    service = await bench.get(SERVICES, "m")
    assert service["spec"]["selector"]["slipway.dev/revision"] == stable["revision"]
    assert await bench.items(HTTP_ROUTES) == await bench.items(VIRTUAL_SERVICES) == []


async def test_a_canary_without_a_provider_is_refused_with_a_clear_message(bench):
    code, said = await bench.kubectl("apply", "-f", "-", stdin=MINIMAL)
    assert code != 0
    assert "must be BlueGreen or Recreate with spec.traffic.provider none, which cannot split traffic" in said


MINIMAL = """
apiVersion: slipway.dev/v1alpha1
kind: ModelDeployment
metadata: {name: m}
spec:
  versions: [{name: v1, uri: "file:///models/v1.pt"}]
  traffic: {provider: none}
"""
