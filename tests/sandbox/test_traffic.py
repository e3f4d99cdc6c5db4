"""Requests through the real Envoy while pods come and go."""

import asyncio
import contextlib

import aiohttp
import pytest

from e2e.sandbox.controllers.client import DEPLOYMENTS, PODS
from tests.sandbox.bench import echo, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.integration]

WORKERS = 4


class Traffic:
    """Sends requests to a Service through the gateway, one after another in each worker, and counts the answers."""

    def __init__(self, bench, service):
        self.codes = {}
        self.versions = {}
        self._url = bench.sandbox.gateway_url
        self._host = f"{service}.{bench.namespace}.svc.cluster.local"
        self._tasks = []

    async def __aenter__(self):
        self._session = aiohttp.ClientSession()
        await eventually(self.works)
        self.codes.clear()
        self._tasks = [asyncio.create_task(self._send()) for _ in range(WORKERS)]
        return self

    async def __aexit__(self, *exc_info):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def works(self):
        return await self._one() == 200

    async def _one(self):
        async with self._session.get(f"{self._url}/", headers={"Host": self._host}) as response:
            code = response.status
            if code == 200:
                version = (await response.json())["version"]
                self.versions[version] = self.versions.get(version, 0) + 1
        self.codes[code] = self.codes.get(code, 0) + 1
        return code

    async def _send(self):
        while True:
            try:
                await self._one()
            except aiohttp.ClientError as error:
                self.codes[type(error).__name__] = self.codes.get(type(error).__name__, 0) + 1
            await asyncio.sleep(0.01)

    async def more(self, count):
        """Wait for so many more answers."""
        wanted = sum(self.codes.values()) + count

        async def enough():
            return sum(self.codes.values()) >= wanted

        await eventually(enough)


@pytest.fixture
def no_retries(bench):
    """A route without retries, so that no failure is hidden."""
    return {
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": "web", "namespace": bench.namespace},
        "spec": {
            "hosts": ["web"],
            "http": [
                {
                    "retries": {"attempts": 0},
                    "route": [{"destination": {"host": "web", "port": {"number": 80}}, "weight": 100}],
                }
            ],
        },
    }


async def test_a_rolling_update_loses_no_request(bench, no_retries):
    path = f"/apis/networking.istio.io/v1/namespaces/{bench.namespace}/virtualservices"
    await bench.client.request("POST", path, no_retries)
    await bench.deploy(echo("web", replicas=2))
    await bench.expose("web")
    await bench.rolled_out("web")
    async with Traffic(bench, "web") as traffic:
        await traffic.more(50)
        await bench.change_args("web", "--version", "v2")
        await bench.rolled_out("web")
        await traffic.more(50)
        await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}})
        await bench.ready_pods("web", 3)
        await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
        await bench.ready_pods("web", 1)
        await traffic.more(50)
    assert set(traffic.codes) == {200}
    assert set(traffic.versions) == {"v1", "v2"}


async def test_without_pods_the_gateway_says_unavailable(bench):
    await bench.deploy(echo("web", replicas=1))
    await bench.expose("web")
    await bench.rolled_out("web")
    async with Traffic(bench, "web") as traffic:
        await bench.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}})
        await bench.ready_pods("web", 0)

        async def unavailable():
            return 503 in traffic.codes

        await eventually(unavailable)


async def test_prometheus_scrapes_annotated_pods(bench):
    deployment = echo("web")
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "8080",
        "prometheus.io/path": "/metrics",
    }
    await bench.deploy(deployment)
    (pod,) = await bench.ready_pods("web", 1)
    query = f'sandbox_echo_requests_total{{namespace="{bench.namespace}",pod="{pod["metadata"]["name"]}"}}'

    async def found():
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{bench.sandbox.prometheus_url}/api/v1/query", params={"query": query}) as response,
            ):
                return (await response.json())["data"]["result"]

    (series,) = await eventually(found)
    assert series["metric"]["node"] == "sandbox-node-0"
    await bench.client.delete(PODS, pod)
